"""A mesh, in one process or in many, and DTensors on it."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode, local_tensor_mode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial("sum")

Placements: TypeAlias = tuple[Placement, ...]
"""One per mesh dim."""

COLUMNS: dict[int, dict[str, tuple[Placements, ...]]] = {
    1: {
        "S(0)": ((S0,),),
        "R": ((R,),),
        "P": ((P,),),
        "S(1)": ((S1,),),
        "mixed": ((S0,), (S1,), (R,)),
    },
    2: {
        "S(0) S(1)": ((S0, S1),),
        "S(1) S(1)": ((S1, S1),),
        "R S(0)": ((R, S0),),
        "P S(1)": ((P, S1),),
        "mixed": ((S1, S0), (R, S1), (S0, R)),
    },
}
"""By dims of the mesh, how the tensors of a call are placed; several: in turn."""


@contextmanager
def local_ranks(*shape: int) -> Iterator[DeviceMesh]:
    """Make a mesh whose ranks all live in this process."""
    ranks = math.prod(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of its fake process group
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        with LocalTensorMode(ranks):
            yield init_device_mesh("cpu", shape)
    finally:
        dist.destroy_process_group()


def placed(
    values: Sequence[Tensor], turns: Sequence[Placements], mesh: DeviceMesh
) -> list[DTensor]:
    """Put values on a mesh, in fresh memory, placed in turn.

    A tensor that lacks the dim is cut along its last one, or replicated if it has none.
    """
    return [
        on_mesh(value, tuple(_fitting(p, value) for p in placements), mesh)
        for value, placements in zip(values, itertools.cycle(turns), strict=False)
    ]


def on_mesh(value: Tensor, placements: Placements, mesh: DeviceMesh) -> DTensor:
    """Make one DTensor from its global value."""
    pieces = [piece.clone() for piece in cut(value, placements, mesh)]
    local = pieces[0] if local_tensor_mode() is None else LocalTensor(dict(enumerate(pieces)))
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=value.shape, stride=value.stride()
    )


def cut(value: Tensor, placements: Sequence[Placement], mesh: DeviceMesh) -> list[Tensor]:
    """List what each rank that this process sees is to have of a value."""
    pieces = [value]
    for placement, ranks in zip(placements, mesh.shape, strict=True):
        pieces = [part for piece in pieces for part in _pieces(piece, placement, ranks)]
    if local_tensor_mode() is None:
        return [pieces[mesh.mesh.flatten().tolist().index(dist.get_rank())]]
    return pieces


def on_every_rank(tensor: Tensor) -> list[Tensor]:
    """List what each rank that this process sees has of a tensor."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return list(local._local_tensors.values()) if isinstance(local, LocalTensor) else [local]


def _fitting(placement: Placement, value: Tensor) -> Placement:
    if not isinstance(placement, Shard):
        return placement
    return Shard(min(placement.dim, value.ndim - 1)) if value.ndim else R


def _pieces(value: Tensor, placement: Placement, ranks: int) -> list[Tensor]:
    if isinstance(placement, Shard):
        pieces = list(value.chunk(ranks, placement.dim))
        return pieces + [value.narrow(placement.dim, 0, 0)] * (ranks - len(pieces))
    if placement == R:
        return [value] * ranks
    # Every rank has other numbers, and none of them the sum.
    others = [torch.full_like(value, rank + 1) for rank in range(ranks - 1)]
    return [*others, value - sum(others)]
