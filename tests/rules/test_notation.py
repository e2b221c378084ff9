"""The rows of an equation: one per letter that can be cut, for the shapes of one call."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules import Notation, Parameter, Signature, TensorMeta, notation
from dtensor_registry.rules.well_formed import show_row

OP = "acme.f.default"


def meta(*shape: Any) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), None)


def rows_of(rule: Notation, *args: Any, **kwargs: Any) -> list[str]:
    count = len([a for a in (*args, *kwargs.values()) if isinstance(a, TensorMeta)])
    return [show_row(row, count) for row in rule(OP, args, kwargs)]


BATCH = ["S(0) <- S(0)", "S(1) <- S(2)"]
# Equation, options, shapes, rows.
ROWS: list[tuple[str, dict[str, Any], list[tuple[int, ...]], list[str]]] = [
    # The same letter is cut together; one that an output lacks is not, unless it is reduced.
    ("m k, k n -> m n", {}, [(4, 6), (6, 8)], ["S(0) <- S(0), R", "S(1) <- R, S(1)"]),
    (
        "m k, k n -> m n",
        {"reduce": "k"},
        [(4, 6), (6, 8)],
        ["S(0) <- S(0), R", "P(sum) <- S(1), S(0)", "S(1) <- R, S(1)"],
    ),
    ("b n -> b", {"reduce": {"n": "max"}}, [(4, 6)], ["S(0) <- S(0)", "P(max) <- S(1)"]),
    (
        "m n -> ()",
        {"reduce": {"m": "sum", "n": "min"}},
        [(4, 6)],
        ["P(sum) <- S(0)", "P(min) <- S(1)"],
    ),
    # A reduced letter that one of the outputs has: the others are partial.
    (
        "b n -> b, b n",
        {"reduce": "n"},
        [(4, 6)],
        ["S(0), S(0) <- S(0)", "P(sum), S(1) <- S(1)"],
    ),
    # Every output must have a placement.
    ("b n -> b n, b", {}, [(4, 6)], ["S(0), S(0) <- S(0)"]),
    ("b n -> b n, ()", {}, [(4, 6)], []),
    # One that is the same on every rank has one, whatever is cut.
    ("b n -> b n, _", {}, [(4, 6)], ["S(0), R <- S(0)", "S(1), R <- S(1)"]),
    # Never cut.
    ("b s -> b s", {"fixed": "s"}, [(4, 6)], ["S(0) <- S(0)"]),
    ("b... s -> b... s", {"fixed": "b..."}, [(4, 6)], ["S(1) <- S(1)"]),
    ("... s -> ... s", {"fixed": "..."}, [(4, 6)], ["S(1) <- S(1)"]),
    # A dim that the op makes.
    ("b n -> b k, b k", {"fixed": "n k"}, [(4, 6)], ["S(0), S(0) <- S(0)"]),
    # A tensor that stays whole; a scalar; a dim of size 1.
    ("b n, _ -> b n", {}, [(4, 6), (3, 3, 3)], ["S(0) <- S(0), R", "S(1) <- S(1), R"]),
    ("b, () -> b", {}, [(4,), ()], ["S(0) <- S(0), R"]),
    ("b n, b 1 -> b n, b 1", {"fixed": "n"}, [(4, 6), (4, 1)], ["S(0), S(0) <- S(0), S(0)"]),
    ("() -> ()", {}, [()], []),
    # Groups: any number of dims, aligned at their ends.
    ("... -> ...", {}, [()], []),
    ("... -> ...", {}, [(4, 6)], ["S(0) <- S(0)", "S(1) <- S(1)"]),
    (
        "b... m k, b... k n -> b... m n",
        {"reduce": "k"},
        [(2, 3, 4, 5), (3, 5, 6)],
        [
            "S(0) <- S(0), R",
            "S(1) <- S(1), S(0)",
            "S(2) <- S(2), R",
            "P(sum) <- S(3), S(1)",
            "S(3) <- R, S(2)",
        ],
    ),
    (
        "b... m k, b... k n -> b... m n",
        {},
        [(4, 5), (5, 6)],
        ["S(0) <- S(0), R", "S(1) <- R, S(1)"],
    ),
    (
        "b... d, d -> b... d, b... 1",
        {"fixed": "d"},
        [(2, 3, 4), (4,)],
        ["S(0), S(0) <- S(0), R", "S(1), S(1) <- S(1), R"],
    ),
    (
        "b... d -> d",
        {"reduce": "b"},
        [(2, 3, 4)],
        ["P(sum) <- S(0)", "P(sum) <- S(1)", "S(0) <- S(2)"],
    ),
    # A dim in the middle; two groups side by side in an output.
    ("b s... d -> b s... d", {"fixed": "b d"}, [(2, 3, 4, 5)], ["S(1) <- S(1)", "S(2) <- S(2)"]),
    (
        "a..., c... -> a... c...",
        {},
        [(2, 3), (4,)],
        ["S(0) <- S(0), R", "S(1) <- S(1), R", "S(2) <- R, S(0)"],
    ),
    # Broadcast: an input of size 1 stays whole where another is larger, or has a dim more.
    ("i j, i j -> i j", {}, [(4, 1), (4, 6)], ["S(0) <- S(0), S(0)", "S(1) <- R, S(1)"]),
    ("..., ... -> ...", {}, [(4, 1), (6,)], ["S(0) <- S(0), R", "S(1) <- R, S(0)"]),
    ("i, i -> i", {}, [(1,), (1,)], ["S(0) <- S(0), S(0)"]),
    ("i k, k -> i", {"reduce": "k"}, [(4, 6), (1,)], ["S(0) <- S(0), R", "P(sum) <- S(1), R"]),
    # Of a dim made of factors the outermost is cut, between its elements.
    ("h d -> (h d)", {}, [(6, 4)], ["S(0)/6 <- S(0)"]),
    ("(h d) -> h d", {"sizes": {"d": 4}}, [(24,)], ["S(0) <- S(0)/6"]),
    ("(h d e), d e -> h", {}, [(24,), (2, 3)], ["S(0) <- S(0)/4, R"]),
    (
        "b (h d) -> b d",
        {"reduce": "h", "sizes": {"d": 4}},
        [(2, 8)],
        ["S(0) <- S(0)", "P(sum) <- S(1)/2"],
    ),
    ("(h d), h -> h d", {}, [(24,), (6,)], ["S(0) <- S(0)/6, S(0)"]),
    # A factor that is known may tell another.
    ("(h d), (g d), h -> g", {}, [(24,), (12,), (6,)], ["S(0) <- R, S(0)/3, R"]),
    ("(g e), (h g), h -> e g", {}, [(12,), (8,), (2,)], []),
    # Without its size no cut is sure to fall between two elements; dims of size 1 tell none.
    ("b (h d) -> b h d", {}, [(3, 8)], ["S(0) <- S(0)"]),
    ("b (h d), d -> b h", {}, [(3, 8), (1,)], ["S(0) <- S(0), R"]),
    ("b (h d), d -> b h", {"fixed": "d"}, [(3, 8), (2,)], ["S(0) <- S(0), R"]),
    ("b (h d), d -> b h", {}, [(3, 0), (0,)], ["S(0) <- S(0), R"]),
    # What the op is told the size of it would be told on a piece as well.
    ("b s (h d) -> b h s d", {"sizes": {"h": 2}}, [(3, 4, 8)], ["S(0) <- S(0)", "S(2) <- S(1)"]),
    ("b (h d), h -> b h d", {"sizes": {"h": 2}}, [(3, 8), (2,)], ["S(0) <- S(0), R"]),
    # No cut goes through a factor that stands behind another, or stays.
    ("b h s d -> b s (h d)", {}, [(3, 2, 4, 5)], [BATCH[0], "S(2)/2 <- S(1)", BATCH[1]]),
    ("b h s d -> b s (d h)", {}, [(3, 2, 4, 5)], [*BATCH, "S(2)/5 <- S(3)"]),
    ("b h s d -> b s (h d)", {"fixed": "h"}, [(3, 2, 4, 5)], BATCH),
    (
        "b h d, (d h) -> b",
        {"reduce": "h d"},
        [(2, 3, 4), (12,)],
        ["S(0) <- S(0), R", "P(sum) <- S(2), S(0)/4"],
    ),
]


@pytest.mark.parametrize(("equation", "options", "shapes", "rows"), ROWS)
def test_a_letter_that_every_output_can_do_with_gives_a_row(
    equation: str, options: dict[str, Any], shapes: list[tuple[int, ...]], rows: list[str]
) -> None:
    rule = notation(equation, **options)
    assert rows_of(rule, *(meta(*shape) for shape in shapes)) == rows


def test_numbers_and_flags_among_the_arguments_are_passed_over() -> None:
    assert rows_of(notation("b, b -> b"), meta(4), 3, meta(4), flag=True) == ["S(0) <- S(0), S(0)"]


@pytest.mark.parametrize(
    ("kwargs", "row"),
    [
        ({"out": meta(4), "y": meta(4, 6)}, "P(sum) <- S(0), P(sum), S(1)"),
        ({"y": meta(4, 6), "out": meta(4)}, "P(sum) <- S(0), S(1), P(sum)"),
        ({"y": meta(4, 6), "out": None}, "P(sum) <- S(0), S(1)"),
    ],
)
def test_an_out_tensor_is_placed_as_the_output_where_the_caller_wrote_it(
    kwargs: dict[str, Any], row: str
) -> None:
    rule = notation("k, m k -> m", reduce="k")
    assert rows_of(rule, meta(6), **kwargs)[0] == row


class SymbolicSize:
    """A size that, as torch's symbolic ones may, refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a guard on a symbolic size")

    __hash__ = None  # type: ignore[assignment]


def test_a_symbolic_size_is_not_compared() -> None:
    size = SymbolicSize()
    rule = notation("i j, i j, (j h) -> i j", sizes={"h": 2})
    merge = notation("b h d -> b (h d)")
    assert rows_of(notation("i j, i j -> i j"), meta(4, size), meta(4, 1)) == [
        "S(0) <- S(0), S(0)",
        "S(1) <- S(1), R",
    ]
    assert rows_of(rule, meta(4, size), meta(4, size), meta(size)) == ["S(0) <- S(0), S(0), R"]
    assert rows_of(merge, meta(4, size, 2)) == ["S(0) <- S(0)"]
    assert rows_of(merge, meta(size, 2, size)) == ["S(0) <- S(0)", "S(1)/2 <- S(1)"]


SIGNATURE = Signature(
    OP,
    (
        Parameter("x", is_tensor=True),
        Parameter("heads"),
        Parameter("bias", is_tensor=True, is_required=False),
        Parameter("xs", is_tensor=True, is_required=False, default=()),
        Parameter("scale", is_tensor=True, is_keyword=True, is_required=False),
        Parameter("into", is_tensor=True, is_keyword=True, output=1),
    ),
    outputs=2,
)


def bound(equation: str, **options: Any) -> Notation:
    def rule_of(name: str) -> Any:
        raise AssertionError(name)

    return notation(equation, **options).bound(SIGNATURE, rule_of)


BOUND = bound("b n, n, b k, b -> b n, n", fixed="k", reduce="b")


@pytest.mark.parametrize(
    ("args", "kwargs", "rows"),
    [
        # An argument that is left out is missing from the row, and moves no other.
        ((meta(4, 6), 2), {}, ["S(0), P(sum) <- S(0)", "S(1), S(0) <- S(1)"]),
        (
            (meta(4, 6), 2, None, [meta(4, 9)]),
            {},
            ["S(0), P(sum) <- S(0), S(0)", "S(1), S(0) <- S(1), R"],
        ),
        (
            (meta(4, 6),),
            {"scale": meta(4)},
            ["S(0), P(sum) <- S(0), S(0)", "S(1), S(0) <- S(1), R"],
        ),
        ((meta(4, 6), 2, meta(6)), {}, ["S(0), P(sum) <- S(0), R", "S(1), S(0) <- S(1), S(0)"]),
        # Each tensor of a list is what the list is; sizes of fixed letters need not agree.
        (
            (meta(4, 6), 2, None, [meta(4, 2), meta(4, 9)]),
            {},
            ["S(0), P(sum) <- S(0), S(0), S(0)", "S(1), S(0) <- S(1), R, R"],
        ),
        # What is written to is placed as its own output.
        (
            (meta(4, 6), 2),
            {"into": meta(6), "scale": meta(4)},
            ["S(0), P(sum) <- S(0), P(sum), S(0)", "S(1), S(0) <- S(1), S(0), R"],
        ),
    ],
)
def test_once_bound_an_input_of_the_equation_is_an_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], rows: list[str]
) -> None:
    lists = sum(len(a) for a in args if isinstance(a, list))
    count = sum(isinstance(a, TensorMeta) for a in (*args, *kwargs.values())) + lists
    assert [show_row(row, count) for row in BOUND(OP, args, kwargs)] == rows


def test_a_size_may_be_an_argument_of_the_op() -> None:
    rule = bound("b (h d), _, _, _ -> b h d, _", sizes={"h": "heads"})
    assert rows_of(rule, meta(3, 8), 2) == ["S(0), R <- S(0)"]
    inner = bound("b (h d), _, _, _ -> b h d, _", sizes={"d": "heads"})
    assert rows_of(inner, meta(3, 8), 2) == ["S(0), R <- S(0)", "S(1), R <- S(1)/4"]
    with pytest.raises(ValueError, match=r"is not '\(h d\)' with h = 3"):
        rule(OP, (meta(3, 8), 3), {})


def test_a_size_that_is_no_argument_of_the_op_is_refused_by_name() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        bound("b (h d), _, _, _ -> b h d, _", sizes={"h": "head"})
    assert str(caught.value) == (
        'notation("b (h d), _, _, _ -> b h d, _", sizes={"h": "head"}): the size of \'h\' is said'
        " to be argument 'head', which acme.f.default(Tensor x, heads, Tensor bias=None, Tensor"
        " xs=(), *, Tensor scale=None, Tensor into) does not have"
    )


def test_binding_does_not_change_what_a_rule_is() -> None:
    rule = notation("b n, n, b k, b -> b n, n", fixed="k", reduce="b")
    assert (rule, str(rule), hash(rule)) == (BOUND, str(BOUND), hash(BOUND))
