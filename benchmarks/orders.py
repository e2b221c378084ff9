"""Collectives of small programs: bare torch, the default order, plugins first.

    python -m benchmarks.orders

One process stands for rank 0 of 4, and its collectives move nothing: what is counted is what
is decided, not how long it takes. Prints the table of docs/rules.md.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (its usual name)
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
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.settings import DEFAULT_ORDER

PLUGINS_FIRST = ("*", "pointwise", "matrix", "structure", "corrections", "torch")
ORDERS: dict[str, tuple[str, ...] | None] = {
    "bare torch": None,
    "default": DEFAULT_ORDER,
    "plugins first": PLUGINS_FIRST,
}
R, S0, S1 = Replicate(), Shard(0), Shard(1)


class Programs:
    """Short programs on one mesh."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh

    def all(self) -> dict[str, Callable[[], None]]:
        """List the programs by name."""
        optim = torch.optim
        return {
            "SGD with momentum, 3 steps": self._steps(
                lambda p: optim.SGD(p, momentum=0.9, foreach=False), 3
            ),
            "AdamW, 3 steps": self._steps(lambda p: optim.AdamW(p, foreach=False), 3),
            "Rprop, 3 steps": self._steps(lambda p: optim.Rprop(p, foreach=False), 3),
            "Muon, 1 step": self._steps(optim.Muon, 1),
            "embedding, weight S(0), backward": self._embedding,
            "two linears, weights S(0) and S(1), backward": self._linears,
            "elementwise ops on P(sum), then relu": self._partials,
            "layer_norm, weight R, backward": self._layer_norm,
        }

    def _put(self, tensor: Tensor, placement: Placement) -> DTensor:
        return distribute_tensor(tensor, self._mesh, [placement], src_data_rank=None)

    def _parameter(self, *shape: int, placed: Placement) -> nn.Parameter:
        return nn.Parameter(self._put(torch.randn(shape), placed))

    def _steps(
        self, optimizer_of: Callable[[list[Tensor]], torch.optim.Optimizer], steps: int
    ) -> Callable[[], None]:
        def run() -> None:
            weight, x = self._parameter(16, 8, placed=R), self._put(torch.randn(8, 8), S0)
            optimizer = optimizer_of([weight])
            for _ in range(steps):
                optimizer.zero_grad()
                F.linear(x, weight).pow(2).sum().backward()
                optimizer.step()

        return run

    def _embedding(self) -> None:
        weight = self._parameter(16, 8, placed=S0)
        F.embedding(self._put(torch.arange(8), R), weight).sum().backward()

    def _linears(self) -> None:
        up, down = self._parameter(16, 8, placed=S0), self._parameter(8, 16, placed=S1)
        x = self._put(torch.randn(4, 8), R)
        F.linear(F.gelu(F.linear(x, up)), down).relu().sum().backward()

    def _partials(self) -> None:
        x = DTensor.from_local(torch.randn(8, 8), self._mesh, [Partial()])
        y = (x * 2).neg().clone()
        torch.where(y > 0, y, x).relu()

    def _layer_norm(self) -> None:
        weight, x = self._parameter(8, placed=R), self._put(torch.randn(8, 8), S0)
        F.layer_norm(x, (8,), weight).sum().backward()


def count(program: Callable[[], None]) -> str:
    """Count the collectives of a program, or say what it raises."""
    torch.manual_seed(0)
    try:
        with CommDebugMode() as counted:
            program()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return str(counted.get_total_counts())


def table(programs: dict[str, Callable[[], None]]) -> str:
    """Run everything under every order and write the table."""
    columns: list[list[str]] = []
    for order in ORDERS.values():
        installed: Any = nullcontext() if order is None else dr.install(order=order)
        with installed:
            columns.append([count(program) for program in programs.values()])
    rows = [["program", *ORDERS], ["---"] * (len(ORDERS) + 1)]
    rows += [list(row) for row in zip(programs, *columns, strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    print(f"torch {torch.__version__}\n{table(Programs(init_device_mesh('cpu', (4,))).all())}")


if __name__ == "__main__":
    main()
