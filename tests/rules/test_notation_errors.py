"""Equations that do not hold: a caret under the character, the call, and what to type."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry.errors import NotationError, RegistryError
from dtensor_registry.rules import Parameter, Signature, TensorMeta, notation

TENSOR = "expected a tensor: its letters, () for a scalar, _ for one that stays whole"

# Equation, where the caret stands, what is said.
SYNTAX = [
    ("", 0, "expected '->' and the outputs"),
    ("m k, k n", 8, "expected '->' and the outputs"),
    ("a -> b -> c", 7, "a second '->'"),
    ("-> a", 0, TENSOR),
    ("a ->", 4, TENSOR),
    ("a, , b -> a", 3, TENSOR),
    ("a,-> a", 2, TENSOR),
    ("é -> é", 0, "expected a letter, not 'é'"),
    ("a 2 -> a", 2, "expected a letter, not '2'"),
    ("a.. -> a", 1, "expected three dots, '...'"),
    ("a b a -> a b", 4, "'a' stands twice in one tensor: a diagonal has no sharding rule"),
    ("a (b a) -> a", 5, "'a' stands twice in one tensor: a diagonal has no sharding rule"),
    ("... a ... -> a", 6, "a second group of dims: where the first ends could not be told"),
    ("a b... -> a b", 12, "'b' is one dim in one place and 'b...' in another"),
    ("_ a -> a", 0, "'_' stands for a whole tensor, so it stands alone"),
    ("a _ -> a", 2, "'_' stands for a whole tensor, so it stands alone"),
    ("a (b c -> a", 2, "'(' is never closed"),
    ("a) -> a", 1, "')' closes nothing"),
    ("a () -> a", 2, "'()' is a scalar, so it stands alone; a dim of size 1 is '1'"),
    ("(a 1) -> a", 3, "a factor is a letter, not '1'"),
    ("(a (b c)) -> a", 3, "a factor is a letter, not '('"),
    ("a -> a b", 7, "no input has 'b'"),
    ("a -> a b...", 7, "no input has 'b'"),
]


@pytest.mark.parametrize(("equation", "position", "problem"), SYNTAX)
def test_a_bad_equation_is_refused_with_a_caret_under_the_character(
    equation: str, position: int, problem: str
) -> None:
    with pytest.raises(NotationError) as caught:
        notation(equation)
    assert (caught.value.problem, caught.value.position) == (problem, position)
    lines = str(caught.value).splitlines()
    assert lines[:3] == [
        f"{problem}, at position {position}:",
        f"    {equation}",
        f"    {' ' * position}^",
    ]
    assert len(lines) > 3  # what to type


# Options, the option as shown, where the caret stands, what is said.
OPTIONS: list[tuple[dict[str, Any], str, int, str]] = [
    ({"reduce": "n z"}, 'reduce="n z"', 10, "no input has 'z'"),
    ({"reduce": "n n"}, 'reduce="n n"', 10, "'n' stands twice"),
    ({"reduce": "n,"}, 'reduce="n,"', 9, "expected a letter of the equation, not ','"),
    ({"reduce": "b"}, 'reduce="b"', 8, "every output has 'b', so nothing is reduced over it"),
    (
        {"reduce": {"n": "mean"}},
        'reduce={"n": "mean"}',
        14,
        "a reduction is one of sum, avg, product, min, max, band, bor, bxor",
    ),
    (
        {"reduce": {"n": "sum", "z": "sum"}},
        'reduce={"n": "sum", "z": "sum"}',
        21,
        "no input has 'z'",
    ),
    ({"reduce": {"nb": "sum"}}, 'reduce={"nb": "sum"}', 10, "expected one letter"),
    ({"reduce": {"": "sum"}}, 'reduce={"": "sum"}', 9, "expected a letter of the equation, not ''"),
    ({"fixed": "q"}, 'fixed="q"', 7, "the equation has no 'q'"),
    (
        {"fixed": "n", "reduce": "n"},
        'fixed="n"',
        7,
        "'n' is never cut, so there is nothing to reduce over it",
    ),
    ({"sizes": {"q": 2}}, 'sizes={"q": 2}', 8, "the equation has no dim 'q'"),
    ({"sizes": {"c": 2}}, 'sizes={"c": 2}', 8, "the equation has no dim 'c'"),
    (
        {"sizes": {"n": 2, "b": 0}},
        'sizes={"n": 2, "b": 0}',
        20,
        "a size is a positive number, or the name of the op's argument that holds it",
    ),
    (
        {"sizes": {"n": "two heads"}},
        'sizes={"n": "two heads"}',
        13,
        "a size is a positive number, or the name of the op's argument that holds it",
    ),
]


@pytest.mark.parametrize(("options", "shown", "position", "problem"), OPTIONS)
def test_a_bad_option_is_refused_with_a_caret_under_what_is_wrong(
    options: dict[str, Any], shown: str, position: int, problem: str
) -> None:
    with pytest.raises(NotationError) as caught:
        notation("c... b n -> c... b", **options)
    assert str(caught.value) == (
        f"{problem}, at position {position}:\n    {shown}\n    {' ' * position}^"
    )


def test_the_error_of_a_bad_equation_in_full() -> None:
    with pytest.raises(NotationError) as caught:
        notation("b (h d -> b h d")
    assert isinstance(caught.value, RegistryError)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "'(' is never closed, at position 2:\n"
        "    b (h d -> b h d\n"
        "      ^\n"
        '  An equation looks like "b... m k, b... k n -> b... m n". A tensor is its letters, one'
        " per dim;\n"
        '  _ if it stays whole, () if it has no dims. Beside letters stand: "..." or "b..." for any'
        " number\n"
        '  of dims, "(h d)" for a dim made of two, "1" for a dim of size 1.'
    )


def test_an_equation_on_several_lines_is_shown_on_one() -> None:
    with pytest.raises(NotationError) as caught:
        notation("a b,\n\ta ? -> a")
    assert str(caught.value).splitlines()[1:3] == ["    a b,  a ? -> a", "            ^"]


def test_a_dim_that_the_op_makes_has_to_be_said_to_be_one() -> None:
    with pytest.raises(NotationError) as caught:
        notation("b n -> b k")
    assert str(caught.value) == (
        "no input has 'k', at position 9:\n"
        "    b n -> b k\n"
        "             ^\n"
        '  If the op makes that dim, say that it is never cut: fixed="k"'
    )


def meta(*shape: int) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), None)


# Equation, options, shapes, the whole message.
CALLS: list[tuple[str, dict[str, Any], list[tuple[int, ...]], str]] = [
    (
        "m k, k n -> m n",
        {},
        [(4, 6), (2, 6, 8)],
        "'k n' is 2 dims, but input 2 has 3 dims, at position 5:\n"
        "    m k, k n -> m n\n"
        "         ^\n"
        "  acme.f.default was called with input 1 (4, 6), input 2 (2, 6, 8).\n"
        '  For any number of leading dims write "... k n" there.',
    ),
    (
        "b... m k -> b... m",
        {},
        [(4,)],
        "'b... m k' is at least 2 dims, but input 1 has 1 dim, at position 0:\n"
        "    b... m k -> b... m\n"
        "    ^\n"
        "  acme.f.default was called with input 1 (4,).",
    ),
    (
        "m k, k n -> m n",
        {},
        [(4, 6)],
        "the equation has 2 inputs, but acme.f.default was called with 1 tensor: input 1,"
        " at position 3:\n"
        "    m k, k n -> m n\n"
        "       ^\n"
        '  One for each, "_" for a tensor that stays whole:  "m k -> m n"',
    ),
    (
        "m k -> m",
        {},
        [(4, 6), (6,), ()],
        "the equation has 1 input, but acme.f.default was called with 3 tensors: input 1, input 2,"
        " input 3, at position 3:\n"
        "    m k -> m\n"
        "       ^\n"
        '  One for each, "_" for a tensor that stays whole:  "m k, _, _ -> m"',
    ),
    (
        "b... k, b... k -> b... k",
        {},
        [(5, 4, 6), (5, 3, 6)],
        "'b' is 3 in input 2, but 4 in input 1, at position 8:\n"
        "    b... k, b... k -> b... k\n"
        "            ^\n"
        "  acme.f.default was called with input 1 (5, 4, 6), input 2 (5, 3, 6).\n"
        '  If it need not agree, and is never to be cut, add fixed="b".',
    ),
    (
        "a b 1 -> a b 1",
        {},
        [(4, 6, 2)],
        "dim of size 2 in input 1 is not '1', at position 4:\n"
        "    a b 1 -> a b 1\n"
        "        ^\n"
        "  acme.f.default was called with input 1 (4, 6, 2).",
    ),
    (
        "b (h d) -> b h d",
        {"sizes": {"h": 4, "d": 3}},
        [(2, 8)],
        "dim of size 8 in input 1 is not '(h d)' with h = 4, d = 3, at position 2:\n"
        "    b (h d) -> b h d\n"
        "      ^\n"
        "  acme.f.default was called with input 1 (2, 8).",
    ),
    (
        "b (h d), b (h e), d -> b h e",
        {},
        [(2, 8), (2, 6), (2,)],
        "dim of size 6 in input 2 is not '(h e)' with h = 4, at position 11:\n"
        "    b (h d), b (h e), d -> b h e\n"
        "               ^\n"
        "  acme.f.default was called with input 1 (2, 8), input 2 (2, 6), input 3 (2,).",
    ),
    (
        "b (h d), h -> b h d",
        {},
        [(2, 8), (3,)],
        "dim of size 8 in input 1 is not '(h d)' with h = 3, at position 2:\n"
        "    b (h d), h -> b h d\n"
        "      ^\n"
        "  acme.f.default was called with input 1 (2, 8), input 2 (3,).",
    ),
    (
        "h -> h",
        {"sizes": {"h": 3}},
        [(8,)],
        "'h' is 8 in input 1, but 3 in sizes, at position 0:\n"
        "    h -> h\n"
        "    ^\n"
        "  acme.f.default was called with input 1 (8,).\n"
        '  If it need not agree, and is never to be cut, add fixed="h".',
    ),
]


@pytest.mark.parametrize(("equation", "options", "shapes", "message"), CALLS)
def test_a_call_that_does_not_fit_is_refused_with_its_shapes(
    equation: str, options: dict[str, Any], shapes: list[tuple[int, ...]], message: str
) -> None:
    rule = notation(equation, **options)
    with pytest.raises(NotationError) as caught:
        rule("acme.f.default", tuple(meta(*shape) for shape in shapes), {})
    assert str(caught.value) == message


SIGNATURE = Signature(
    "acme.f.default", (Parameter("x", is_tensor=True), Parameter("w", is_tensor=True)), outputs=2
)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        (
            "m k -> m, k",
            "the equation has 1 input, but acme.f.default(Tensor x, Tensor w) takes 2 tensors: x,"
            " w, at position 3:\n"
            "    m k -> m, k\n"
            "       ^\n"
            '  One for each, "_" for a tensor that stays whole:  "m k, _ -> m, k"',
        ),
        (
            "m k, k -> m",
            "the equation has 1 output, but acme.f.default returns 2 tensors, at position 10:\n"
            "    m k, k -> m\n"
            "              ^",
        ),
    ],
)
def test_an_op_that_does_not_fit_is_refused_with_its_signature(equation: str, message: str) -> None:
    with pytest.raises(NotationError) as caught:
        notation(equation).bound(SIGNATURE, lambda name: (notation("a -> a"), SIGNATURE))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("equation", "options", "position", "problem"),
    [
        ("(h d) -> h d", {}, 1, "the size of 'h' cannot be told"),
        ("b (h d) -> b h d", {"fixed": "b"}, 3, "the size of 'h' cannot be told"),
        ("(h d), d -> h", {"fixed": "d"}, 1, "the size of 'h' cannot be told"),
        ("(h d) -> h d", {"sizes": {"h": 2}}, 1, "the size of 'h' is given, and a piece"),
        ("(h d), (d h) -> h d", {}, 1, "'h' stands behind another factor"),
        ("(h d) -> h d", {"fixed": "h", "sizes": {"d": 2}}, 1, "'h' is never to be cut"),
    ],
)
def test_an_equation_that_leaves_nothing_to_cut_is_refused(
    equation: str, options: Any, position: int, problem: str
) -> None:
    with pytest.raises(NotationError, match=f"nothing is left to cut: {problem}") as caught:
        notation(equation, **options)
    assert caught.value.position == position
