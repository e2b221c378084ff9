"""Our rows beside torch's own: none of torch's is missing but for a reason that is named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
import torch

from dtensor_registry.placements import Partial, parse_placements
from dtensor_registry.rules import tensor_inputs
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry_kit import torch_rows
from dtensor_registry_kit.judging.backward import judge_backward
from dtensor_registry_kit.judging.judge import check_row
from dtensor_registry_kit.simulation.distribute import reduce_parts
from dtensor_registry_kit.simulation.reference_run import run_reference
from dtensor_registry_pointwise.families import Family
from dtensor_registry_pointwise.rules import FAMILIES

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
CallsOf: TypeAlias = Callable[[Any], list[Call]]

WRITES_ELSEWHERE = "torch knows no out tensor but `out`, and leaves these whole while it shards"
# Shard rows of torch's that we do not have.
WRONG_SHARDS = {
    "aten.frexp.Tensor_out": WRITES_ELSEWHERE,
    "aten.logit_backward.grad_input": WRITES_ELSEWHERE,
    "aten.sigmoid_backward.grad_input": WRITES_ELSEWHERE,
    "aten.silu_backward.grad_input": WRITES_ELSEWHERE,
    "aten.tanh_backward.grad_input": WRITES_ELSEWHERE,
}


def overload(name: str) -> Any:
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def rows_of_torch(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> set[str]:
    rows = torch_rows(overload(name), args, kwargs) or ()
    return {show_row(row, len(tensor_inputs(args, kwargs))) for row in rows}


def our_rows(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> set[str]:
    rule = next(f.strategy.rule for f in FAMILIES.values() if name in f.strategy.names)
    rows = rule(overload(name), tuple(args), kwargs)
    return {show_row(row, len(tensor_inputs(args, kwargs))) for row in rows}


def reason_to_leave_out(name: str, row: str) -> str | None:
    """Say why a partial row of torch's is not ours; None: it should be."""
    output, inputs = row.split(" <- ")[0], row.split(" <- ")[1].split(", ")
    if ("P(max)" in row or "P(min)" in row) and name.split(".")[1].rstrip("_") in PASS_OVER:
        return "what is not a number is passed over, or order depends on a number of the call"
    if name.split(".")[1].rstrip("_") in TIES and "P(m" in output and "R" in inputs:
        return "where ranks tie, each would send a gradient to the argument that is whole"
    if name.split(".")[1].endswith("_") and inputs[0] != output:
        return "the first argument, which is written to, would not be what it was"
    if name == "aten.fill_.Scalar":
        return "ranks that fill in the same number hold a sum that is a multiple of it"
    if name == "aten.special_xlog1py.default":
        return "0 * log1p(-1) is defined as 0, and the partials of a 0 are not 0"
    return None


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_no_row_of_torchs_is_missing_without_a_reason(family: Family, calls_of: CallsOf) -> None:
    missing = {
        f"{name} {row}"
        for name in family.strategy.names
        if name not in WRONG_SHARDS
        for args, kwargs in calls_of(overload(name))
        for row in rows_of_torch(name, args, kwargs) - our_rows(name, args, kwargs)
        if reason_to_leave_out(name, row) is None
    }

    assert missing == set()


def test_wrong_shards_of_torchs_are_replaced_one_for_one(calls_of: CallsOf) -> None:
    for name in WRONG_SHARDS:
        for args, kwargs in calls_of(overload(name)):
            shards = {row for row in our_rows(name, args, kwargs) if row.startswith("S")}

            assert len(shards) == len(rows_of_torch(name, args, kwargs))


@pytest.mark.parametrize("name", WRONG_SHARDS)
def test_a_shard_row_of_torchs_that_is_left_out_is_wrong(name: str, calls_of: CallsOf) -> None:
    args, kwargs = calls_of(overload(name))[0]
    rows = torch_rows(overload(name), args, kwargs)
    assert rows
    for row in rows:
        assert check_row(overload(name), args, kwargs, row, 2).is_wrong


TIES = ("clamp_max", "clamp_min", "max", "maximum", "min", "minimum")
PASS_OVER = ("fmax", "fmin", "nan_to_num", "sgn", "sign", "threshold")
INT, BOOL, UINT8 = torch.int64, torch.bool, torch.uint8
NAN, INF = torch.nan, torch.inf
KEEPS = torch.__version__ >= "2.14"
"""Whether torch has rows by which clone, fill_ and the like keep a pending reduction."""


def held(*values: Any, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """What each of two ranks holds."""
    return [torch.tensor([value], dtype=dtype) for value in values]


@pytest.mark.parametrize(
    ("name", "row", "tensors", "numbers"),
    [
        # The mean of 1 and 2 is 1 for integers: 2 * 1, or the mean of 2 and 4.
        ("aten.mul.Tensor", "P(avg) <- P(avg)", [held(1, 2, dtype=INT)], (2,)),
        # 1 / 2, or the mean of 1 / 2 and 2 / 2.
        ("aten.div.Tensor", "P(avg) <- P(avg)", [held(1, 2, dtype=INT)], (2,)),
        # True + True is True: 2 * 1, or 2 + 2.
        ("aten.mul.Tensor", "P(sum) <- P(sum)", [held(True, True, dtype=BOOL)], (2.0,)),
        ("aten.special_xlog1py.default", "P(sum) <- P(sum), R", [held(1, -1), held(-1, -1)], ()),
        ("aten.special_xlog1py.default", "P(avg) <- P(avg), R", [held(1, -1), held(-1, -1)], ()),
        # Rows that the monotone families must not take over as they are.
        ("aten.neg.default", "P(min) <- P(max)", [held(0, 1, dtype=UINT8)], ()),
        ("aten.threshold.default", "P(max) <- P(max)", [held(-1, 1)], (0, 5)),
        ("aten.nan_to_num.default", "P(max) <- P(max)", [held(INF, -3)], (None, -5.0)),
        ("aten.nan_to_num.default", "P(max) <- P(max)", [held(NAN, 3)], ()),
        ("aten.sign.default", "P(max) <- P(max)", [held(NAN, 3)], ()),
        ("aten.sgn.default", "P(min) <- P(min)", [held(NAN, -3)], ()),
        ("aten.fmax.default", "P(max) <- P(max), R", [held(NAN, -3), held(-7, -7)], ()),
        ("aten.fmin.default", "P(min) <- P(min), R", [held(NAN, 3), held(7, 7)], ()),
        (
            "aten.add.Tensor",
            "P(max) <- P(max), R",
            [held(0, 255, dtype=UINT8), held(1, 1, dtype=UINT8)],
            (),
        ),
    ],
)
def test_a_partial_row_of_torchs_that_is_left_out_is_wrong(
    name: str, row: str, tensors: list[list[torch.Tensor]], numbers: tuple[Any, ...]
) -> None:
    output, *inputs = parse_placements(row.replace(" <- ", ", "))
    whole = [together(parts, given) for parts, given in zip(tensors, inputs, strict=True)]
    want = overload(name)(*whole, *numbers)
    got = together(
        [overload(name)(*local, *numbers) for local in zip(*tensors, strict=True)], output
    )

    assert row in rows_of_torch(name, (*whole, *numbers), {})
    assert row not in our_rows(name, (*whole, *numbers), {})
    assert not torch.equal(got.nan_to_num(-99), want.nan_to_num(-99))


def together(parts: list[torch.Tensor], placement: Any) -> torch.Tensor:
    return reduce_parts(parts, placement.reduce_op) if isinstance(placement, Partial) else parts[0]


@pytest.mark.parametrize("name", ["aten.maximum.default", "aten.clamp_min.Tensor"])
def test_where_ranks_tie_a_whole_argument_gets_its_gradient_twice(name: str) -> None:
    args = (torch.tensor([1.0, 5.0], dtype=torch.float64), torch.tensor([3.0, 3.0]).double())
    row = parse_placements("P(max), P(max), R")

    assert "P(max) <- P(max), R" in rows_of_torch(name, args, {})
    assert check_row(overload(name), args, {}, row, 2).outcome == "sound"
    assert judge_backward(run_reference(overload(name), args), row, 2).is_wrong


def test_rows_that_torch_lacks_are_found_where_an_op_is_linear(calls_of: CallsOf) -> None:
    lacking = {"aten.where.self": True, "aten.lerp.Tensor": True, "aten.clone.default": not KEEPS}
    for name, lacks in lacking.items():
        args, kwargs = calls_of(overload(name))[0]

        gained = our_rows(name, args, kwargs) - rows_of_torch(name, args, kwargs)

        assert any(row.startswith("P(sum)") for row in gained) == lacks


@pytest.mark.parametrize("kind", ["sum", "avg"])
def test_what_torch_keeps_pending_while_it_fills_in_a_number_is_wrong(kind: str) -> None:
    held_by_ranks = held(1, 2, dtype=UINT8)
    filled = [tensor.clone().fill_(200) for tensor in held_by_ranks]

    rows = rows_of_torch("aten.fill_.Scalar", (held_by_ranks[0], 200), {})
    assert (f"P({kind}) <- P({kind})" in rows) == KEEPS
    assert not torch.equal(reduce_parts(filled, kind), filled[0])
