"""`like(op, ...)` with a mapping: the rule of an op whose arguments are called otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import REPLICATE, Partial, ShardingPlaceholder
from dtensor_registry.rules import Like, Parameter, Rule, Signature, TensorMeta, like
from dtensor_registry.rules.well_formed import show_row

THEIRS = Signature(
    "acme.theirs.default",
    (
        Parameter("a", is_tensor=True),
        Parameter("b", is_tensor=True, is_required=False),
        Parameter("dim", is_required=False, default=-1),
        Parameter("c", is_tensor=True, is_keyword=True, is_required=False),
        Parameter("mode", is_keyword=True, is_required=False, default="fast"),
    ),
)
OURS = Signature(
    "acme.ours.default",
    (
        Parameter("scale"),
        Parameter("w", is_tensor=True),
        Parameter("x", is_tensor=True),
        Parameter("xs", is_tensor=True, is_required=False),
        Parameter("axis", is_required=False, default=3),
        Parameter("out", is_tensor=True, is_keyword=True, output=0),
    ),
)


def meta(size: int) -> TensorMeta:
    return TensorMeta((size, 4), (4, 1), None)


W, X, Y, Z = meta(1), meta(2), meta(3), meta(4)
S0, S1, P, R = ShardingPlaceholder(0), ShardingPlaceholder(1), Partial(), REPLICATE


def asked(rule: Like, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    """What the other rule is asked when ours is called."""
    seen: list[Any] = []

    def other(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        seen.append((args, kwargs))
        return []

    rule.bound(OURS, found(other))(OURS.op, args, kwargs)
    return seen[0]


def found(rule: Rule) -> Callable[[str], tuple[Rule, Signature]]:
    def rule_of(name: str) -> tuple[Rule, Signature]:
        assert name == THEIRS.op
        return rule, THEIRS

    return rule_of


@pytest.mark.parametrize(
    ("mapping", "args", "kwargs", "call"),
    [
        ({"a": "x"}, (2.0, W, X), {}, ((X,), {})),
        ({"a": "x", "b": "w"}, (2.0, W, X), {}, ((X, W), {})),
        # What stands before a mapped argument gets its default.
        ({"a": "x", "dim": "axis"}, (2.0, W, X), {}, ((X, None, 3), {})),
        ({"a": "x", "dim": "axis"}, (2.0, W, X, None, 1), {}, ((X, None, 1), {})),
        ({"a": "x", "dim": "axis"}, (2.0, W, X), {"axis": 0}, ((X, None, 0), {})),
        # A value; an argument by name.
        ({"a": "x", "dim": 0}, (2.0, W, X), {}, ((X, None, 0), {})),
        ({"a": "x", "c": "w"}, (2.0, W, X), {}, ((X,), {"c": W})),
        # One of ours may be two of theirs, and a list a list.
        ({"a": "x", "b": "x"}, (2.0, W, X), {}, ((X, X), {})),
        ({"a": "xs"}, (2.0, W, X, [Y, Z]), {}, (([Y, Z],), {})),
    ],
)
def test_the_other_rule_is_asked_as_its_own_op_would_be_called(
    mapping: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], call: Any
) -> None:
    assert asked(like(THEIRS.op, **mapping), *args, **kwargs) == call


@pytest.mark.parametrize(
    ("mapping", "theirs", "args", "kwargs", "rows"),
    [
        # Placements go where the tensors come from; what is not mapped stays whole.
        ({"a": "x", "b": "w"}, [[S0, S1, P]], (2.0, W, X), {}, ["S(0) <- P(sum), S(1)"]),
        ({"a": "x"}, [[S0, S1]], (2.0, W, X), {}, ["S(0) <- R, S(1)"]),
        ({"a": "x", "c": "w"}, [[P, S1, S0]], (2.0, W, X), {}, ["P(sum) <- S(0), S(1)"]),
        ({"a": "x"}, [[S0, S1]], (2.0, W, X), {"out": Y}, ["S(0) <- R, S(1), S(0)"]),
        (
            {"a": "xs", "b": "x"},
            [[S0, S1, P, S0]],
            (2.0, W, X, [Y, Z]),
            {},
            ["S(0) <- R, S(0), S(1), P(sum)"],
        ),
        # A tensor that is two of theirs has one placement.
        (
            {"a": "x", "b": "x"},
            [[S0, S0, R], [S1, S1, S1]],
            (2.0, W, X),
            {},
            ["S(1) <- R, S(1)"],
        ),
        # One that is left out of the call is none of theirs.
        ({"a": "x", "b": "w"}, [[S0, S1]], (2.0, None, X), {}, ["S(0) <- S(1)"]),
    ],
)
def test_its_rows_are_written_for_our_tensors(
    mapping: dict[str, Any],
    theirs: list[list[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rows: list[str],
) -> None:
    rule = like(THEIRS.op, **mapping).bound(OURS, found(lambda op, args, kwargs: theirs))
    values = [*args, *kwargs.values()]
    count = sum(len(a) if isinstance(a, list) else isinstance(a, TensorMeta) for a in values)
    assert [show_row(row, count) for row in rule(OURS.op, args, kwargs)] == rows


def test_without_a_mapping_it_is_the_other_rule_itself() -> None:
    def other(op: Any, args: Any, kwargs: Any) -> list[Any]:
        return []

    assert like(THEIRS.op).bound(OURS, found(other)) is other


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"a": "x", "q": "w"},
            "like(acme.theirs.default, a='x', q='w'): acme.theirs.default(Tensor a, Tensor b=None,"
            " dim=-1, *, Tensor c=None, mode='fast') has no argument 'q'",
        ),
        (
            {"a": "y"},
            "like(acme.theirs.default, a='y'): acme.ours.default(scale, Tensor w, Tensor x, Tensor"
            " xs=None, axis=3, *, Tensor out) has no argument 'y'",
        ),
        (
            {"b": "x"},
            "like(acme.theirs.default, b='x') does not say what 'a' of acme.theirs.default(Tensor"
            " a, Tensor b=None, dim=-1, *, Tensor c=None, mode='fast') is; name an argument of"
            " acme.ours.default(scale, Tensor w, Tensor x, Tensor xs=None, axis=3, *, Tensor out),"
            " or give a value",
        ),
    ],
)
def test_names_are_checked_against_both_schemas(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        like(THEIRS.op, **mapping).bound(OURS, found(lambda op, args, kwargs: []))
    assert str(caught.value) == message


def test_an_op_that_returns_something_else_is_refused() -> None:
    pair = Signature("acme.pair.default", (Parameter("x", is_tensor=True),), outputs=2)
    with pytest.raises(InvalidContributionError) as caught:
        like(THEIRS.op, a="x").bound(pair, found(lambda op, args, kwargs: []))
    assert str(caught.value) == (
        "like(acme.theirs.default, a='x'): acme.theirs.default returns 1 tensor(s),"
        " acme.pair.default 2"
    )


def test_it_prints_in_one_order_and_compares_by_value() -> None:
    rule = like("acme::theirs.default", dim=-1, a="x")
    assert str(rule) == "like(acme.theirs.default, a='x', dim=-1)"
    assert rule == like("acme.theirs.default", a="x", dim=-1)
    assert rule != like("acme.theirs.default", a="x")
