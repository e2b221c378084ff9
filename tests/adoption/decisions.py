"""Deciding a recorded call on a mesh, from random input placements, as torch's dispatcher asks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, RuntimeSchemaInfo
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._pytree import tree_map_only

from tests.adoption.calls import Call, TensorLike, leaves

PARTIALS = ("sum", "sum", "sum", "sum", "avg", "max", "min", "product")
ANY, FEW_PARTIALS = (0.3, 0.75), (0.4, 0.95)
"""Chances of a replica, and of a replica or a shard; what is left is for partials."""
STRIDED = 0.04
"""How often a shard is a strided one."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a propagator answers: placed outputs and moved inputs, or why it cannot.

    Attributes:
        output: specs of the outputs in torch's own nesting.
        moved: the call with its inputs moved, None if they stay as they are.
        error: type and message of what was raised.
        cost: microseconds of all moves as torch estimates them.
    """

    output: Any = None
    moved: OpSchema | None = None
    error: str | None = None
    cost: float = 0.0

    def same(self, other: Decision) -> bool:
        """Whether both place the same outputs after the same redistributions."""
        return (
            _plain(self.output) == _plain(other.output)
            and _plain(_arguments(self.moved)) == _plain(_arguments(other.moved))
            and (self.error is None) == (other.error is None)
        )

    def __str__(self) -> str:
        if self.error is not None:
            return self.error
        moved = "(as they are)" if self.moved is None else show(self.moved)
        return f"{show(self.output)} <- {moved}  {self.cost:.2f} us"


def place(call: Call, mesh: DeviceMesh, rng: random.Random) -> OpSchema:
    """Draw placements for every tensor of a call, often much the same for all.

    Nearly always so where one is written to: the others must fit it, or there is no answer.
    """
    writes = call.op._schema.is_mutable
    odds = FEW_PARTIALS if writes else ANY
    alike = rng.random() < (0.9 if writes else 0.5)
    lead = [_placement(8, rng, odds) for _ in range(mesh.ndim)]

    def spec(like: TensorLike) -> DTensorSpec:
        rank = len(like.shape)
        drawn = [
            _within(led, rank) if alike and rng.random() < 0.9 else _placement(rank, rng, odds)
            for led in lead
        ]
        meta = TensorMeta(torch.Size(like.shape), like.stride, like.dtype)
        return DTensorSpec(mesh, tuple(drawn), tensor_meta=meta)

    args, kwargs = tree_map_only(
        TensorLike, spec, (call.args, dict(call.kwargs)), is_leaf=_is_tensor_like
    )
    return OpSchema(call.op, args, kwargs, schema_info=schema_info(call))


def schema_info(call: Call) -> RuntimeSchemaInfo | None:
    """Find what torch's dispatcher would put in the schema."""
    prop = DTensor._op_dispatcher.sharding_propagator
    single = prop.op_to_schema_info_for_single_dim_strategy
    return prop.op_to_schema_info.get(call.op) or single.get(call.op)


def decide(schema: OpSchema) -> Decision:
    """Ask torch's propagator, past its caches."""
    prop = DTensor._op_dispatcher.sharding_propagator
    try:
        answer = prop.propagate_op_sharding_non_cached(schema)
    except Exception as error:  # whatever it is, it is the answer that a user gets
        return Decision(error=f"{type(error).__name__}: {error}")
    moved = answer.redistribute_schema
    if moved is None or not answer.needs_redistribute:
        return Decision(answer.output_spec)
    pairs = zip(specs(_arguments(schema)), specs(_arguments(moved)), strict=True)
    cost = sum(redistribute_cost(before, after) for before, after in pairs)
    return Decision(answer.output_spec, moved, cost=float(cost))


def _placement(rank: int, rng: random.Random, odds: tuple[float, float]) -> Placement:
    kind = rng.random()
    if kind > odds[1]:
        return Partial(rng.choice(PARTIALS))
    if kind < odds[0] or not rank:
        return Replicate()
    dim = rng.randrange(rank)
    return _StridedShard(dim, split_factor=2) if rng.random() < STRIDED else Shard(dim)


def _within(placement: Placement, rank: int) -> Placement:
    """Fit the placement of a tensor of 8 dims to one of fewer."""
    if not isinstance(placement, (Shard, _StridedShard)):
        return placement
    if not rank:
        return Replicate()
    dim = placement.dim % rank
    return Shard(dim) if isinstance(placement, Shard) else _StridedShard(dim, split_factor=2)


def specs(value: Any) -> list[DTensorSpec]:
    """List the specs in nested containers."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, DTensorSpec)]


def show(value: Any) -> str:
    """Write a call, or what came out of one, by its placements."""
    shown = [
        f"({', '.join(map(str, leaf.placements))})" if isinstance(leaf, DTensorSpec) else str(leaf)
        for leaf in leaves(_arguments(value) if isinstance(value, OpSchema) else value)
    ]
    return ", ".join(shown)


def _arguments(schema: OpSchema | None) -> Any:
    return None if schema is None else (schema.op, schema.args_schema, schema.kwargs_schema)


def _plain(value: Any) -> list[Any]:
    """Write specs so that they compare by value; masks of an embedding compare by identity."""
    return [
        (str(leaf.placements), leaf.tensor_meta, leaf.shard_order)
        if isinstance(leaf, DTensorSpec)
        else leaf
        for leaf in leaves(value)
    ]


def _is_tensor_like(value: Any) -> bool:
    return isinstance(value, TensorLike)
