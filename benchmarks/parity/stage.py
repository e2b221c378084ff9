"""Where a program runs: on ranks, with DTensors, or in one process, with plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import parallelize_module

RANKS = 4

Placed: TypeAlias = str
"""Placements as text, one letter or word for each mesh dim: `"S0"`, `"R S1"`, `"P"`."""

Results: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """What a program is given.

    The program is written once. In one process `mesh` and `grid` are None, tensors stay plain and
    modules whole; what it returns then is what the ranks must return, too.

    Attributes:
        mesh: the four ranks in a row, or None.
        grid: the same as two by two, its dims called `dp` and `tp`, or None.
        folder: an empty folder that all ranks share.
    """

    mesh: DeviceMesh | None
    grid: DeviceMesh | None
    folder: Path

    @property
    def on_ranks(self) -> bool:
        """Whether this is one of several ranks."""
        return self.mesh is not None

    def place(self, value: Tensor, placed: Placed) -> Tensor:
        """Put a value on the mesh, or on the grid if `placed` has two words."""
        if self.mesh is None:
            return value.detach().clone().requires_grad_(value.requires_grad)
        placements = read(placed)
        mesh = self.mesh if len(placements) == 1 else self.grid
        assert mesh is not None
        if any(isinstance(p, Partial) for p in placements):
            return _with_partials(value, mesh, placements)
        placed_value = distribute_tensor(value.detach(), mesh, placements)
        return placed_value.requires_grad_(value.requires_grad)

    def place_module(self, module: nn.Module, placed: Mapping[str, Placed] | Placed) -> nn.Module:
        """Make DTensors of all parameters and buffers, replicated where nothing is said."""
        if self.mesh is None:
            return module
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            where = placed if isinstance(placed, str) else placed.get(name, "R")
            if tensor.dim() == 0 and "S" in where:
                where = " ".join("R" for _ in where.split())
            owner_name, _, own = name.rpartition(".")
            owner = module.get_submodule(owner_name)
            value = self.place(tensor.detach(), where)
            if isinstance(tensor, nn.Parameter):
                owner.register_parameter(own, nn.Parameter(value, tensor.requires_grad))
            else:
                owner.register_buffer(own, value)
        return module

    def parallelize(
        self, module: nn.Module, plan: Mapping[str, Any], *, mesh: DeviceMesh | None = None
    ) -> nn.Module:
        """Apply a plan of tensor parallelism; in one process the module stays as it is."""
        if self.mesh is None:
            return module
        return parallelize_module(module, self.mesh if mesh is None else mesh, dict(plan))

    def share(
        self, value: Tensor, mesh: DeviceMesh | None = None, *, tensor_dim: int = 0
    ) -> Tensor:
        """Take this rank's share of a batch, a plain tensor; all of it in one process.

        Args:
            value: the batch.
            mesh: of one dim; None: all four ranks.
            tensor_dim: where it is cut.
        """
        if self.mesh is None:
            return value
        mesh = self.mesh if mesh is None else mesh
        return value.chunk(mesh.size(), tensor_dim)[mesh.get_local_rank()].contiguous()

    def from_share(self, local: Tensor | None, placed: Placed) -> Tensor | None:
        """Make the tensor of which each rank has its share."""
        if self.mesh is None or local is None:
            return local
        return DTensor.from_local(local.detach(), self.mesh, read(placed), run_check=False)


def read(placed: Placed) -> tuple[Placement, ...]:
    """Read placements as text.

    >>> read("R S1")
    (Replicate(), Shard(dim=1))
    """
    return tuple(_read(word) for word in placed.split())


def _read(word: str) -> Placement:
    if word == "R":
        return Replicate()
    if word.startswith("S"):
        return Shard(int(word[1:]))
    return Partial({"P": "sum", "Pavg": "avg", "Pmax": "max", "Pmin": "min"}[word])


def _with_partials(value: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> Tensor:
    """Give each rank another part of a value; for an even number of ranks."""
    rest = [Replicate() if isinstance(p, Partial) else p for p in placements]
    local = distribute_tensor(value.detach(), mesh, rest).to_local().clone()
    for mesh_dim, placement in enumerate(placements):
        if not isinstance(placement, Partial):
            continue
        count, at = mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim)
        offset = torch.full_like(local, (at // 2 + 1) * (1 if at % 2 else -1))
        if placement.reduce_op == "sum":
            local = local / count + offset
        elif placement.reduce_op == "avg":
            local = local + offset
        else:
            local = local if at == count - 1 else local - abs(offset) * _sign(placement)
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=value.shape, stride=value.stride()
    ).requires_grad_(value.requires_grad)


def _sign(placement: Partial) -> int:
    return 1 if placement.reduce_op == "max" else -1


def stage_of_ranks(folder: Path) -> Stage:
    """Make the meshes of a rank; the process group exists already."""
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return Stage(mesh, grid, folder)


Run: TypeAlias = Callable[[Stage], Results]


@dataclass(frozen=True)
class Program:
    """A short program.

    Attributes:
        name: its name on the command line.
        run: runs it, and returns what is compared.
        tolerance: relative; for what is computed in few bits.
        alone: whether it changes its process, so that no other program may run there.
        seconds: after which it counts as hanging.
    """

    name: str
    run: Run
    tolerance: float = 1e-7
    alone: bool = False
    seconds: float = 60.0
