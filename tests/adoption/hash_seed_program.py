"""Decides calls with several equally cheap answers and prints them, by bare torch and adopted.

Run with `PYTHONHASHSEED` set; the test compares what different seeds print.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor.placement_types import _StridedShard

import dtensor_registry as dr
from dtensor_registry.settings import Settings

aten = torch.ops.aten
R, S, P = Replicate(), Shard, Partial

CASES: tuple[tuple[Any, list[Any], Sequence[tuple[Placement, Placement]]], ...] = (
    # Rules of torch's own.
    (aten.add.Tensor, [(8, 8), (8, 8)], [(R, S(0)), (R, P())]),
    (aten.add.Tensor, [(8, 8), (8, 8)], [(P(), _StridedShard(0, split_factor=2)), (R, S(1))]),
    (aten.mm.default, [(16, 8), (8, 16)], [(R, R), (R, P())]),
    (aten.mm.default, [(16, 8), (8, 16)], [(R, P()), (P("avg"), R)]),
    (aten.bmm.default, [(4, 8, 8), (4, 8, 8)], [(R, S(0)), (R, R)]),
    (aten.addcmul.default, [(8, 8)] * 3, [(P(), R), (R, S(1)), (R, R)]),
    # Decompositions, of which torch makes rules out of a set.
    (aten.index_copy.default, [(), 0, (1,), ()], [(P(), R), (R, R), (R, R)]),
    (aten.index_copy.default, [(), 0, (1,), ()], [(R, R), (P(), P()), (R, R)]),
    (aten.mse_loss_backward.default, [(), (), (), 1], [(R, R), (R, R), (R, P())]),
    (aten.mv.default, [(16, 8), (8,)], [(R, R), (R, S(0))]),
    (aten.rsub.Tensor, [(), ()], [(R, R), (R, P())]),
    (aten.soft_margin_loss_backward.default, [(), (), (), 1], [(R, P()), (R, P()), (R, P())]),
)


def schema(
    mesh: DeviceMesh, op: Any, args: list[Any], placements: Sequence[tuple[Placement, ...]]
) -> OpSchema:
    """Give an op tensors of these shapes in these placements."""
    given = iter(placements)

    def spec(shape: tuple[int, ...]) -> DTensorSpec:
        like = torch.empty(shape, device="meta", dtype=dtypes.get(shape, torch.float32))
        meta = TensorMeta(like.shape, like.stride(), like.dtype)
        return DTensorSpec(mesh, next(given), tensor_meta=meta)

    dtypes: dict[tuple[int, ...], torch.dtype] = {(1,): torch.int64}  # index of index_copy
    prop = DTensor._op_dispatcher.sharding_propagator
    single = prop.op_to_schema_info_for_single_dim_strategy
    info = prop.op_to_schema_info.get(op) or single.get(op)
    return OpSchema(
        op,
        tuple(spec(arg) if isinstance(arg, tuple) else arg for arg in args),
        {},
        schema_info=info,
    )


def answers(mesh: DeviceMesh) -> dict[str, str]:
    """Decide all cases."""
    found = {}
    for op, args, placements in CASES:
        asked = schema(mesh, op, args, placements)
        prop = DTensor._op_dispatcher.sharding_propagator
        answer = prop.propagate_op_sharding_non_cached(asked)
        found[str(asked)] = f"{answer.output_spec} <- {answer.redistribute_schema}"
    return found


def main() -> None:
    """Print the answers as JSON, twice: a change of rules must not change them."""
    logging.disable()
    dist.init_process_group("fake", rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    bare = answers(mesh)
    with dr.install(Settings(allowed=())):
        adopted = answers(mesh)
    json.dump({"bare": bare, "adopted": adopted}, sys.stdout)


if __name__ == "__main__":
    main()
