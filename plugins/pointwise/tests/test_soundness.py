"""Every row of every table, held against the op: run in pieces it gives what it gives whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pytest
import torch

from dtensor_registry import pointwise
from dtensor_registry_kit.judging.judge import Verdict, judge
from dtensor_registry_kit.simulation.reference_run import run_reference
from dtensor_registry_pointwise import linear
from dtensor_registry_pointwise.families import Family
from dtensor_registry_pointwise.rules import FAMILIES

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
CallsOf: TypeAlias = Callable[[Any], list[Call]]

LINEAR = {
    name: family for name, family in FAMILIES.items() if getattr(family.strategy.rule, "linear", ())
}
RANKS = (2, 3)


def verdicts(op: Any, rule: Any, calls: Iterable[Call]) -> Iterator[Verdict]:
    for args, kwargs in calls:
        whole = run_reference(op, args, kwargs)
        for row in rule(op, args, kwargs):
            for ranks in RANKS:
                yield judge(whole, [row], (ranks,), allow_empty=True)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_row_of_every_op_is_sound(family: Family, calls_of: CallsOf) -> None:
    for name in family.strategy.names:
        found = list(verdicts(overload(name), family.strategy.rule, calls_of(overload(name))))

        assert [f"{name} {verdict}" for verdict in found if verdict.is_wrong] == []
        assert Counter(verdict.outcome for verdict in found)["sound"] > 0, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool])
@pytest.mark.parametrize("family", LINEAR.values(), ids=LINEAR)
def test_linear_rows_are_sound_for_every_kind_of_dtype(
    family: Family, dtype: torch.dtype, calls_of: CallsOf
) -> None:
    for name in family.strategy.names:
        op = overload(name)
        calls = [call for call in map(to(dtype), calls_of(op)) if runs(op, call)]
        found = verdicts(op, family.strategy.rule, calls)

        assert [f"{name} {verdict}" for verdict in found if verdict.is_wrong] == []


@pytest.mark.parametrize("first", [torch.int64, torch.bool])
def test_a_partial_integer_or_bool_is_sound_beside_a_float(
    first: torch.dtype, calls_of: CallsOf
) -> None:
    for name in ("aten.add.Tensor", "aten.mul.Tensor", "aten.div.Tensor", "aten.ldexp.Tensor"):
        rule = next(f.strategy.rule for f in LINEAR.values() if name in f.strategy.names)
        calls = [
            ((args[0].to(first), *args[1:]), kwargs) for args, kwargs in calls_of(overload(name))
        ]

        found = list(verdicts(overload(name), rule, calls))

        assert [f"{name} {verdict}" for verdict in found if verdict.is_wrong] == []
        assert any(verdict.outcome == "sound" for verdict in found)


@pytest.mark.parametrize(
    ("number", "passes"), [(0, True), (0.0, True), (1, False), (-0.5, False), (True, False)]
)
def test_a_number_to_add_passes_a_sum_only_if_it_is_zero(number: float, passes: bool) -> None:
    x = torch.arange(5.0)
    rows = linear.ADDITIVE.strategy.rule(torch.ops.aten.add.Tensor, (x, number), {})

    assert ("P(sum)" in {str(row[0]) for row in rows}) == passes


@pytest.mark.parametrize("value", [0, 2.5])
def test_a_fill_is_sound_for_zero_and_for_other_values(value: float) -> None:
    op = torch.ops.aten.masked_fill.Scalar
    mask = torch.tensor([True, False, True, False])
    call: Call = ((torch.arange(20.0).reshape(5, 4), mask, value), {})

    found = list(verdicts(op, linear.FILLS.strategy.rule, [call]))

    assert {verdict.outcome for verdict in found} == {"sound"}
    assert any("P(sum)" in row for verdict in found for row in verdict.rows) == (value == 0)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("aten.abs.default", pointwise(linear=[(0,)])),
        ("aten.mul.Tensor", pointwise(linear=[(0, 1)])),
        ("aten.div.Tensor", pointwise(linear=[(0,), (1,)])),
        ("aten.lerp.Tensor", pointwise(linear=[(0, 1, 2)])),
        ("aten.where.self", pointwise(linear=[(1,), (2,)])),
        ("aten.frexp.Tensor", pointwise(linear=[(0,)], outputs=2)),
        ("aten.sigmoid_backward.grad_input", pointwise(linear=[(0,)])),
    ],
)
def test_a_family_with_a_wrong_identity_would_be_caught(
    name: str, wrong: Any, calls_of: CallsOf
) -> None:
    found = verdicts(overload(name), wrong, calls_of(overload(name)))

    assert any(verdict.is_wrong for verdict in found)


def overload(name: str) -> Any:
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def to(dtype: torch.dtype) -> Callable[[Call], Call]:
    def convert(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        whole_numbers = value.round()
        # Nothing is 0, since a fixed 1 / 0 is not finite.
        return torch.where(whole_numbers == 0, 3, whole_numbers).to(dtype)

    return lambda call: (tuple(map(convert, call[0])), {k: convert(v) for k, v in call[1].items()})


def runs(op: Any, call: Call) -> bool:
    try:
        run_reference(op, *call)
    except RuntimeError:
        return False
    return True
