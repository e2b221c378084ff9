"""Strided shards, as FSDP over tensor parallel makes them: torch prices no move of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Partial
from torch.nn import functional

import dtensor_registry as dr
from dtensor_registry.errors import NoValidRowError
from tests.never_worse.comparison import ORDERS, Comparison, Program

STRIDED, NESTED = "_S(0, 2)", "_S(0, 2), S(0)"

PROGRAMS: dict[str, Program] = {
    "add": lambda x, y: x + y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "mm": lambda x, y: x @ y.t(),
    "mm of a transposed": lambda x, y: x.t() @ y,
    "add_": lambda x, y: x.clone().add_(y),
    "mul_ by a broadcast": lambda x, y: x.clone().mul_(y[:, :1]),
    "gelu": lambda x, y: functional.gelu(x),
    "softmax": lambda x, y: x.softmax(0) + y,
    "clamp": lambda x, y: torch.clamp(x, y, y + 1),
    "sum": lambda x, y: (x.sum(), x.sum(0), x.sum(1)),
    "norm": lambda x, y: torch.linalg.vector_norm(x) + y.sum(),
    "foreach": lambda x, y: torch._foreach_add([x, y], [y, x]),
    "cat": lambda x, y: torch.cat([x, y]),
    "backward": lambda x, y: _gradients(lambda a, b: (a * b).sum(), x, y),
}


def _gradients(function: Program, *tensors: Any) -> tuple[Any, ...]:
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    function(*leaves).backward()
    return tuple(leaf.grad for leaf in leaves)


@pytest.mark.parametrize(
    ("other", "order"),
    [("S(0)", "default"), ("R", "default"), ("P(sum)", "default"), ("S(0)", "plugins first")],
)
def test_a_strided_shard_meets_another_placement_as_on_bare_torch(
    compare: Callable[..., Comparison], other: str, order: str
) -> None:
    x, y = torch.randn(8, 2), torch.randn(8, 2)
    compare(4).assert_none_worse(PROGRAMS, (x, STRIDED), (y, other), order=ORDERS[order])


@pytest.mark.parametrize(
    ("other", "order"),
    [
        ("S(0), S(0)", "default"),
        ("S(0), R", "default"),
        (NESTED, "default"),
        ("S(0), S(0)", "plugins first"),
    ],
)
def test_shards_of_fsdp_over_tensor_parallel_meet_others_as_on_bare_torch(
    compare: Callable[..., Comparison], other: str, order: str
) -> None:
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    compare(2, 2).assert_none_worse(PROGRAMS, (x, NESTED), (y, other), order=ORDERS[order])


def test_an_infinite_price_is_taken_where_there_is_no_other(
    compare: Callable[..., Comparison],
) -> None:
    found = compare(2, 2).assert_none_worse(
        {"add": lambda x, y: x + y}, (torch.randn(8, 4), NESTED), (torch.randn(8, 4), "S(0), S(0)")
    )
    assert found["add"].placements == ("R, R",)
    assert found["add"].collectives == 4


def test_a_move_that_torch_cannot_make_is_still_refused(
    compare: Callable[..., Comparison],
) -> None:
    comparison = compare(4)
    x = comparison.place(torch.randn(8, 2), "P(max)")
    y = comparison.place(torch.randn(8, 2), "S(0)")
    registered = dr.register_single_dim_strategy("aten.atan2_.default")(
        lambda op, args, kwargs: [[Partial("max")] * 3]
    )
    message = r"torch cannot turn input 1 from \(S\(0\)\) into \(P\(max\)\)"
    try:
        with pytest.raises(RuntimeError, match=message) as raised:
            x.atan2_(y)
        assert type(raised.value.__cause__) is NoValidRowError
    finally:
        registered.undo()
