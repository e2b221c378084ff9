"""Strided shards, shards in another order, and what the program itself registers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional

from benchmarks.parity.stage import Program, Results, Stage

OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "gelu": lambda x, _: functional.gelu(x),
    "mm": lambda x, y: x @ y.t(),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "clone": lambda x, _: x.clone(),
    "neg": lambda x, _: -x,
    "sum": lambda x, _: x.sum(0),
    "add-in-place": lambda x, y: x.clone().add_(y),
    "softmax": lambda x, _: x.softmax(-1),
    "layer-norm": lambda x, _: functional.layer_norm(x, (8,)),
    "zeros-like": lambda x, y: torch.zeros_like(x) + y,
}


def _strided(stage: Stage, value: Tensor, placed: str) -> Tensor:
    """Cut dim 0 by the inner mesh dim first, as FSDP over tensor parallelism does."""
    if stage.grid is None:
        return value
    whole = distribute_tensor(value, stage.grid, [Replicate(), Replicate()])
    inner = Shard(0) if placed == "SS S0" else Replicate()
    return whole.redistribute(placements=[_StridedShard(0, split_factor=2), inner])


def _other_order(stage: Stage, value: Tensor) -> Tensor:
    """Cut dim 0 by the second mesh dim first: an ordinary `S(0), S(0)` with another order."""
    if stage.grid is None:
        return value
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta

    first, second = stage.grid.get_local_rank(0), stage.grid.get_local_rank(1)
    local = value.chunk(2)[second].chunk(2)[first].contiguous()
    spec = DTensorSpec(
        stage.grid,
        (Shard(0), Shard(0)),
        TensorMeta(value.shape, value.stride(), value.dtype),
        shard_order=(ShardOrderEntry(tensor_dim=0, mesh_dims=(1, 0)),),
    )
    return DTensor(local, spec, requires_grad=False)


def _in_place(run: Callable[[Tensor, Tensor], Tensor], kind: str, stage: Stage) -> Results:
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    if kind == "order":
        return {"out": run(_other_order(stage, x), _other_order(stage, y))}
    if kind == "order-mixed":
        return {"out": run(_other_order(stage, x), stage.place(y, "S0 S0"))}
    other = "S0 S0" if kind == "SS S0" else "S0 R"
    return {"out": run(_strided(stage, x, kind), stage.place(y, other))}


def _own_rule(before: bool, stage: Stage) -> Results:
    """The program registers a sharding by torch's public API; it must be what decides.

    `dot` of two cut vectors may stay a partial sum; the program wants it whole.
    """
    calls: list[int] = []

    def rule(*_: object) -> list[tuple[list[object], list[object]]]:
        calls.append(1)
        return [([Replicate()], [Replicate(), Replicate()])]

    if stage.on_ranks:
        register_sharding(torch.ops.aten.dot.default)(rule)
    x = stage.place(torch.randn(8), "S0")
    found = {"dot": torch.dot(x, x)}
    return {**found, "asked": bool(calls) or not stage.on_ranks}


PROGRAMS = [
    *(
        Program(f"{name.replace(' ', '-').lower()}-{op}", partial(_in_place, run, name))
        for name in ("SS R", "SS S0", "order", "order-mixed")
        for op, run in OPS.items()
    ),
    Program("register-sharding", partial(_own_rule, False), alone=True),
]
