"""Every row of the vendor's strategies is sound: two ranks, played by hand on plain tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from acme_kernels import rms_norm, rms_norm_backward, swiglu, swiglu_backward
from acme_kernels.dtensor import P, R, provide_single_dim_strategy
from dtensor_registry import ShardingPlaceholder, is_tensor

RANKS = 2
GENERATOR = torch.Generator().manual_seed(7)
STRATEGIES = {strategy.names[0]: strategy for strategy in provide_single_dim_strategy()}


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "acme.rms_norm.default": (rms_norm, (random(4, 6, 8), random(8), 1e-3)),
    "acme.rms_norm_backward.default": (
        rms_norm_backward,
        (random(4, 6, 8), random(4, 6, 8), random(8), random(4, 6, 1)),
    ),
    "acme.swiglu.default": (swiglu, (random(4, 6, 8), random(4, 6, 8))),
    "acme.swiglu_backward.default": (
        swiglu_backward,
        (random(4, 6, 8), random(4, 6, 8), random(4, 6, 8)),
    ),
}

EXPECTED_ROWS = {
    "acme.rms_norm.default": [
        "S?(0), S?(0), S?(0), R",
        "S?(1), S?(1), S?(1), R",
        "P(sum), R, R, P(sum)",
    ],
    "acme.rms_norm_backward.default": [
        "S?(0), P(sum), S?(0), S?(0), R, S?(0)",
        "S?(1), P(sum), S?(1), S?(1), R, S?(1)",
        "P(sum), P(sum), P(sum), R, R, R",
        "P(sum), R, R, R, P(sum), R",
    ],
    "acme.swiglu.default": [
        "S?(0), S?(0), S?(0)",
        "S?(1), S?(1), S?(1)",
        "S?(2), S?(2), S?(2)",
        "P(sum), R, P(sum)",
        "P(avg), R, P(avg)",
    ],
    "acme.swiglu_backward.default": [
        "S?(0), S?(0), S?(0), S?(0), S?(0)",
        "S?(1), S?(1), S?(1), S?(1), S?(1)",
        "S?(2), S?(2), S?(2), S?(2), S?(2)",
        "P(sum), P(sum), P(sum), R, R",
        "P(avg), P(avg), P(avg), R, R",
    ],
}


def rows_of(op: str, args: tuple[Any, ...]) -> list[list[Any]]:
    return [list(row) for row in STRATEGIES[op].rule(op, args, {})]


def local_parts(whole: Tensor, placement: Any) -> list[Tensor]:
    """What each rank holds of an input."""
    if placement == R:
        return [whole] * RANKS
    if isinstance(placement, ShardingPlaceholder):
        return list(whole.chunk(RANKS, placement.dim))
    scale = RANKS if placement.reduce_op == "avg" else 1
    first = torch.rand_like(whole)
    return [first, whole * scale - first]


def whole_of(parts: list[Tensor], placement: Any) -> Tensor:
    """What the parts of an output mean together."""
    if placement == R:
        torch.testing.assert_close(parts[0], parts[1])
        return parts[0]
    if isinstance(placement, ShardingPlaceholder):
        return torch.cat(parts, placement.dim)
    total = parts[0] + parts[1]
    return total / RANKS if placement.reduce_op == "avg" else total


def run_sharded(op: Any, args: tuple[Any, ...], row: list[Any]) -> list[Tensor]:
    """Run the op on every rank's part of the inputs, and put the outputs together."""
    inputs = [argument for argument in args if is_tensor(argument)]
    split = len(row) - len(inputs)
    parts = iter([local_parts(x, p) for x, p in zip(inputs, row[split:], strict=True)])
    arguments = [next(parts) if is_tensor(a) else [a] * RANKS for a in args]
    outputs = [outputs_of(op(*local)) for local in zip(*arguments, strict=True)]
    return [
        whole_of(list(parts), p) for parts, p in zip(zip(*outputs, strict=True), row, strict=False)
    ]


def outputs_of(result: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def test_there_is_one_strategy_for_each_op() -> None:
    assert sorted(STRATEGIES) == sorted(CALLS)


@pytest.mark.parametrize("op", sorted(CALLS))
def test_rows_are_the_ones_that_the_mathematics_allows(op: str) -> None:
    rows = rows_of(op, CALLS[op][1])
    assert [", ".join(map(str, row)) for row in rows] == EXPECTED_ROWS[op]


@pytest.mark.parametrize(
    ("op", "number"), [(op, i) for op, rows in EXPECTED_ROWS.items() for i in range(len(rows))]
)
def test_row_gives_the_values_of_the_whole_call(op: str, number: int) -> None:
    call, args = CALLS[op]
    row = rows_of(op, args)[number]
    torch.testing.assert_close(run_sharded(call, args, row), outputs_of(call(*args)))


@pytest.mark.parametrize(
    ("op", "row"),
    [
        ("acme.rms_norm.default", [ShardingPlaceholder(2)] * 3 + [ShardingPlaceholder(0)]),
        ("acme.swiglu.default", [P, P, P]),
        ("acme.swiglu.default", [P, P, R]),
        ("acme.rms_norm_backward.default", [P, P, R, P, R, R]),
    ],
)
def test_a_row_that_is_wrong_would_be_noticed(op: str, row: list[Any]) -> None:
    call, args = CALLS[op]
    with pytest.raises((AssertionError, ValueError)):
        torch.testing.assert_close(run_sharded(call, args, row), outputs_of(call(*args)))


def test_a_vector_has_no_dim_that_rms_norm_can_share_out() -> None:
    rows = rows_of("acme.rms_norm.default", (random(8), random(8), 1e-3))
    assert not any(isinstance(entry, ShardingPlaceholder) for row in rows for entry in row)
