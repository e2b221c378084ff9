"""A device mesh whose ranks all live in this process, and DTensors of given pieces on a mesh."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from dtensor_registry.errors import InstallError
from dtensor_registry.mesh_sizes import parse_mesh
from dtensor_registry.placements import Placements
from dtensor_registry.torch_runtime.conversion import placements_to_torch
from dtensor_registry_kit.torch_private import (
    FakeStore,
    LocalTensor,
    LocalTensorMode,
    local_tensor_mode,
    outside_of_modes,
    values_of_ranks,
)


@contextmanager
def simulated_mesh(*sizes: int | str) -> Iterator[DeviceMesh]:
    """Make a mesh of ranks that run one after the other in this process.

    Inside, a tensor is a `LocalTensor`, with a value for each rank, and collectives are
    computed. No network, no processes.

    Args:
        sizes: ranks on each mesh dim, `2, 4`, or a text, `"2x4"` or `"dp=2,tp=4"`.

    Yields:
        The mesh.

    Raises:
        InstallError: if this process is part of a process group already.
        NotationError: for a text that is no mesh.

    >>> from torch.distributed.tensor import Shard, distribute_tensor
    >>> with simulated_mesh("dp=2,tp=2") as mesh:
    ...     x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0), Shard(1)])
    ...     mesh.mesh_dim_names, x.to_local().shape, x.relu().placements
    (('dp', 'tp'), torch.Size([2, 2]), (Shard(dim=0), Shard(dim=1)))
    """
    asked = parse_mesh("x".join(map(str, sizes)))
    if dist.is_initialized():
        raise InstallError(
            "a simulated mesh needs a process without a process group, and this one has one.\n"
            "  Call torch.distributed.destroy_process_group() first, or use another process."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of its fake process group
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=asked.ranks)
    try:
        with LocalTensorMode(asked.ranks):
            yield init_device_mesh("cpu", asked.shape, mesh_dim_names=asked.names)
    finally:
        dist.destroy_process_group()


@contextmanager
def plainly() -> Iterator[None]:
    """Compute with plain tensors for a while, on a simulated mesh or not."""
    mode = local_tensor_mode()
    if mode is None:
        yield
    else:
        with mode.disable():
            yield


def of_pieces(
    pieces: Sequence[torch.Tensor], whole: torch.Tensor, placements: Placements, mesh: DeviceMesh
) -> DTensor:
    """Make the DTensor of which each rank holds a given piece; of real ranks, this one its own."""
    local = (
        pieces[mesh.mesh.flatten().tolist().index(dist.get_rank())]
        if local_tensor_mode() is None
        else LocalTensor(dict(enumerate(pieces)))  # type: ignore[no-untyped-call]
    )
    return DTensor.from_local(
        local,
        mesh,
        placements_to_torch(placements),
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def on_every_rank(tensor: torch.Tensor) -> list[torch.Tensor]:
    """List what each rank holds of a tensor, DTensor or local.

    Real ranks must all ask: they send each other what they hold.
    """
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    if isinstance(local, LocalTensor):
        return values_of_ranks(local)
    if local_tensor_mode() is None and dist.is_initialized():
        with outside_of_modes():  # who counts collectives does not mean these
            return _gathered(local.detach())
    return [local]


def _gathered(local: torch.Tensor) -> list[torch.Tensor]:
    """Send what this rank holds to all others as bytes, whatever its shape there."""
    shape = torch.tensor([local.element_size(), *local.shape])  # never empty, even of a scalar
    shapes = [torch.empty_like(shape) for _ in range(dist.get_world_size())]
    dist.all_gather(shapes, shape)
    sizes = [prod(other.tolist()) for other in shapes]
    held = torch.zeros(max(1, *sizes), dtype=torch.uint8)
    held[: sizes[dist.get_rank()]] = local.contiguous().reshape(-1).view(torch.uint8)
    every = [torch.empty_like(held) for _ in sizes]
    dist.all_gather(every, held)
    return [
        part[:size].view(local.dtype).reshape(other.tolist()[1:])
        for part, size, other in zip(every, sizes, shapes, strict=True)
    ]
