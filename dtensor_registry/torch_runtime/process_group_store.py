"""The store of a process group: where ranks leave notes for each other without a collective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _get_default_store

from dtensor_registry.errors import InstallError


@dataclass(frozen=True, slots=True)
class Meeting:
    """Ranks that share a store.

    Attributes:
        store: reached by all of them.
        rank: this process, as a global rank.
        ranks: all of them, as global ranks, sorted.
    """

    store: Any
    rank: int
    ranks: tuple[int, ...]


def meeting_of(group: Any = None) -> Meeting | None:
    """Find the store of a process group.

    Args:
        group: a process group, or None for the default one.

    Returns:
        The meeting, or None where there is nobody to meet: one rank, a rank outside the
        group, or a group that is only pretended (the backend `fake`).

    Raises:
        InstallError: without a process group.
    """
    if not dist.is_initialized():
        raise InstallError(
            "cannot compare ranks: there is no process group.\n"
            "  Call torch.distributed.init_process_group() first."
        )
    return _meeting(dist.get_process_group_ranks(group), dist.get_backend(group))


def meeting_on(mesh: DeviceMesh) -> Meeting | None:
    """Find the store that the ranks of a mesh share; as `meeting_of`."""
    with unset_fake_temporarily():  # the mesh may be used first while torch.compile traces
        ranks = mesh.mesh.flatten().tolist()
    return _meeting(ranks, dist.get_backend())


def _meeting(ranks: list[int], backend: str) -> Meeting | None:
    rank = dist.get_rank()
    if backend == "fake" or len(ranks) < 2 or rank not in ranks:
        return None
    return Meeting(_get_default_store(), rank, tuple(sorted(ranks)))
