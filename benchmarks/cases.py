"""What is decided in a benchmark: ops, the shapes they get, random placements, meshes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, RuntimeSchemaInfo
from torch.distributed.tensor._ops.single_dim_strategy import (
    _ShardingPlaceholder,
    register_single_dim_strategy,
)

MESHES = {1: (4,), **{ndim: (2,) * ndim for ndim in range(2, 7)}}
RANKS = math.prod(MESHES[6])
BARE_UP_TO = 4
"""Mesh dims up to which bare torch is measured; one more and a decision takes minutes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An op and the shapes of its inputs.

    Attributes:
        name: as it stands in the table.
        op: the overload.
        shapes: of its tensors, all float32.
    """

    name: str
    op: OpOverload
    shapes: tuple[tuple[int, ...], ...]

    def draw(self, mesh: DeviceMesh, seed: int) -> OpSchema:
        """Make a call whose placements are drawn from R, P(sum) and every S(d)."""
        rng = random.Random(f"{self.name} {mesh.shape} {seed}")
        prop = DTensor._op_dispatcher.sharding_propagator
        single = prop.op_to_schema_info_for_single_dim_strategy
        info = prop.op_to_schema_info.get(self.op) or single.get(self.op)
        specs = tuple(_spec(mesh, shape, rng) for shape in self.shapes)
        return OpSchema(self.op, specs, {}, schema_info=info)


def _spec(mesh: DeviceMesh, shape: Sequence[int], rng: random.Random) -> DTensorSpec:
    options: list[Placement] = [Replicate(), Partial(), *map(Shard, range(len(shape)))]
    like = torch.empty(shape, device="meta")
    meta = TensorMeta(like.shape, like.stride(), like.dtype)
    return DTensorSpec(mesh, tuple(rng.choice(options) for _ in range(mesh.ndim)), tensor_meta=meta)


@cache
def mesh_of(ndim: int) -> DeviceMesh:
    """Make the mesh that stands for a number of mesh dims."""
    return init_device_mesh("cpu", MESHES[ndim])


@cache
def subjects() -> tuple[Subject, ...]:
    """List the ops to measure; two of them are made here, with rules given to torch."""
    aten = torch.ops.aten
    return (
        Subject("mm", aten.mm.default, ((4096, 1024), (1024, 4096))),
        Subject("add", aten.add.Tensor, ((4096, 1024), (4096, 1024))),
        Subject("bmm", aten.bmm.default, ((64, 512, 256), (64, 256, 512))),
        Subject("5 inputs, 8 rows", _product("product8", _rows(8)), ((64, 128, 64, 128),) * 5),
        Subject("5 inputs, 12 rows", _product("product12", _rows(12)), ((64, 128, 64, 128),) * 5),
    )


_library = torch.library.Library("propagation_benchmark", "FRAGMENT")


def _product(name: str, rows: list[list[Any]]) -> OpOverload:
    """Make an op that multiplies five tensors, with a rule in torch's own table."""
    _library.define(f"{name}(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e) -> Tensor")
    _library.impl(name, lambda a, b, c, d, e: a * b * c * d * e, "CompositeExplicitAutograd")
    op: OpOverload = getattr(torch.ops.propagation_benchmark, name).default
    rule = register_single_dim_strategy(op, schema_info=RuntimeSchemaInfo())
    rule(lambda _op, _args, _kwargs: [list(row) for row in rows])
    return op


def _rows(count: int) -> list[list[Any]]:
    """Give rows of the product of five tensors of four dims: cut alike, or linear in one."""
    rows: list[list[Any]] = [[_ShardingPlaceholder(dim)] * 6 for dim in range(4)]
    for kind in ("sum", "avg"):
        for linear in range(5):
            partial = Partial(kind)
            inputs = [partial if at == linear else Replicate() for at in range(5)]
            rows.append([partial, *inputs])
    return rows[:count]
