"""Rows by the names of arguments, and rules put together of rows and other rules."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry.errors import InvalidContributionError, PlacementSyntaxError
from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Replicate,
    ShardingPlaceholder,
    StridedShard,
)
from dtensor_registry.rules import (
    NamedRow,
    Parameter,
    Signature,
    TensorMeta,
    batched,
    einsum,
    passthrough,
    row,
    rows,
)
from dtensor_registry.rules.well_formed import show_row

OP = "acme.f.default"
X = TensorMeta((8, 4), (4, 1), None)
SIGNATURE = Signature(
    OP,
    (
        Parameter("x", is_tensor=True),
        Parameter("eps"),
        Parameter("w", is_tensor=True, is_required=False),
        Parameter("xs", is_tensor=True, is_required=False),
        Parameter("mask", is_tensor=True, is_keyword=True, is_required=False),
        Parameter("out", is_tensor=True, is_keyword=True, output=1),
    ),
    outputs=2,
)


def no_other(name: str) -> Any:
    raise AssertionError(name)


def rows_of(rule: NamedRow, *args: Any, **kwargs: Any) -> list[str]:
    values = [*args, *kwargs.values()]
    count = sum(len(a) if isinstance(a, list) else isinstance(a, TensorMeta) for a in values)
    return [show_row(r, count) for r in rule.bound(SIGNATURE, no_other)(OP, args, kwargs)]


@pytest.mark.parametrize(
    ("args", "kwargs", "shown"),
    [
        ((X, 1.0), {}, "S(0), P(sum) <- S(1)"),
        ((X, 1.0, X), {}, "S(0), P(sum) <- S(1), R"),
        ((X, 1.0, None, [X, X]), {}, "S(0), P(sum) <- S(1), P(max), P(max)"),
        ((X, 1.0), {"mask": X}, "S(0), P(sum) <- S(1), S(0)"),
        ((X,), {"mask": X, "eps": 1.0, "w": X}, "S(0), P(sum) <- S(1), S(0), R"),
        ((X, 1.0), {"out": X, "mask": X}, "S(0), P(sum) <- S(1), P(sum), S(0)"),
    ],
)
def test_each_tensor_has_the_placement_of_its_argument_or_stays_whole(
    args: tuple[Any, ...], kwargs: dict[str, Any], shown: str
) -> None:
    rule = row(out="S(0), P", x="S(1)", xs="P(max)", mask="S(0)")
    assert rows_of(rule, *args, **kwargs) == [shown]


def test_a_shard_is_a_placeholder_for_the_kind_of_sharding_that_the_inputs_have() -> None:
    rule = row(out="S(0), R", x="S?(1)", w="_S(0, 2)", mask="R")
    assert rule.outputs == (ShardingPlaceholder(0), Replicate())
    assert dict(rule.inputs) == {
        "x": ShardingPlaceholder(1),
        "w": StridedShard(0, 2),
        "mask": REPLICATE,
    }


def test_without_outputs_the_row_is_one_of_inputs() -> None:
    signature = Signature(OP, (Parameter("x", is_tensor=True),), outputs=0)
    rule = row(x="S(0)").bound(signature, no_other)
    assert rule(OP, (X,), {}) == [[ShardingPlaceholder(0)]]


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        (
            {"out": "R", "x": "R"},
            'row(out="R", x="R") says nothing: that everything may be whole is implied for every'
            " op",
        ),
        ({}, "row() says nothing: that everything may be whole is implied for every op"),
        (
            {"out": "S(0)", "x": "S(-1)"},
            'row(out="S(0)", x="S(-1)"): S(-1) counts from the end; a row counts dims from 0',
        ),
        (
            {"out": "S(0)", "x": "S(0), R"},
            'row(x="S(0), R"): a row is about one mesh dim, on which a tensor has one placement;'
            " the host puts rows together for more",
        ),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(placements: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        row(**placements)
    assert str(caught.value) == message


def test_what_is_no_placement_is_refused_with_a_caret() -> None:
    with pytest.raises(PlacementSyntaxError) as caught:
        row(out="S(0)", x="P(mean)")
    assert str(caught.value).splitlines()[1:] == ["    P(mean)", "      ^"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            row(out="S(0), R", y="S(0)"),
            'row(out="S(0), R", y="S(0)"): acme.f.default(Tensor x, eps, Tensor w=None, Tensor'
            " xs=None, *, Tensor mask=None, Tensor out) has no tensor argument 'y'; it has x, w,"
            " xs, mask",
        ),
        (
            row(out="S(0), R", eps="S(0)"),
            'row(out="S(0), R", eps="S(0)"): acme.f.default(Tensor x, eps, Tensor w=None, Tensor'
            " xs=None, *, Tensor mask=None, Tensor out) has no tensor argument 'eps'; it has x, w,"
            " xs, mask",
        ),
        (
            row(out="S(0)", x="S(0)"),
            'row(out="S(0)", x="S(0)") places 1 output(s), but acme.f.default returns 2; write'
            ' out="S(0), S(0)" or the like',
        ),
        (
            row(x="S(0)"),
            'row(x="S(0)") places 0 output(s), but acme.f.default returns 2; write'
            ' out="S(0), S(0)" or the like',
        ),
    ],
)
def test_names_and_outputs_are_checked_against_the_schema(rule: NamedRow, message: str) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        rule.bound(SIGNATURE, no_other)
    assert str(caught.value) == message


def test_outputs_of_an_op_that_has_none_are_refused() -> None:
    signature = Signature(OP, (Parameter("x", is_tensor=True),), outputs=0)
    with pytest.raises(InvalidContributionError) as caught:
        row(out="S(0)", x="S(0)").bound(signature, no_other)
    assert str(caught.value) == (
        'row(out="S(0)", x="S(0)") places 1 output(s), but acme.f.default returns 0; leave'
        " 'out' out"
    )


def test_a_row_is_not_asked_before_it_is_bound() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        row(out="S(0)", x="S(0)")(OP, (X,), {})
    assert str(caught.value) == (
        'row(out="S(0)", x="S(0)") was asked for rows before it was bound to an op, so it does not'
        " know where its arguments stand; use it as the rule of a strategy that is installed"
    )


def test_a_row_prints_what_builds_it_and_compares_by_value() -> None:
    rule = row(x="S?(1)", out="S(0),P", w="R")
    assert str(rule) == 'row(out="S(0), P(sum)", w="R", x="S(1)")'
    assert eval(str(rule), {"row": row}) == rule == rule.bound(SIGNATURE, no_other)
    assert len({rule, row(w="R", x="S(1)", out="S(0), P(sum)"), row(out="S(0)", x="S(0)")}) == 2


def test_rows_are_those_of_all_parts_each_once_in_their_order() -> None:
    double = Signature("acme.double.default", (Parameter("x", is_tensor=True),))
    rule = rows(batched(ins=[1], outs=[1]), row(out="P(max)", x="P(max)"), passthrough())
    found = rule.bound(double, no_other)(OP, (TensorMeta((8, 4), (4, 1), None),), {})
    assert [show_row(r, 1) for r in found] == [
        "S(1) <- S(1)",
        "P(max) <- P(max)",
        "S(0) <- S(0)",
        "P(sum) <- P(sum)",
        "P(avg) <- P(avg)",
        "P(product) <- P(product)",
        "P(min) <- P(min)",
    ]


def by_hand(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return [[Partial("sum"), ShardingPlaceholder(0)]]


def test_rules_put_together_print_compare_and_lie_flat() -> None:
    mm = einsum("mk,kn->mn")
    rule = rows(rows(mm, row(out="P(max)", self="P(max)")), by_hand)
    assert str(rule) == 'rows(einsum(mk,kn->mn), row(out="P(max)", self="P(max)"), by_hand)'
    assert rule == rows(mm, row(out="P(max)", self="P(max)"), by_hand)
    assert rule != rows(mm, by_hand)
    assert by_hand(OP, (X,), {})[0] in rows(by_hand)(OP, (X,), {})


def test_a_part_that_is_no_rule_is_refused() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        rows(["S(0)", "S(0)"])  # type: ignore[arg-type]
    assert str(caught.value) == "rows(...): ['S(0)', 'S(0)'] is no rule; write row(...)"


def test_a_part_that_does_not_fit_the_op_is_refused_when_all_are_bound() -> None:
    with pytest.raises(InvalidContributionError, match="no tensor argument 'y'"):
        rows(row(out="S(0), R", y="S(0)")).bound(SIGNATURE, no_other)
