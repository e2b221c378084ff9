"""Rows of an audit as JSON values, to be told by a rank and compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

KINDS = {
    "all_gather_into_tensor": "all_gather",
    "all_reduce": "all_reduce",
    "allgather_": "all_gather",
    "broadcast_": "broadcast",
    "reduce_scatter_tensor": "reduce_scatter",
    "scatter_": "scatter",
    "_wrap_tensor_autograd": "",
    "wait_tensor": "",
}
"""Ops of the namespaces of collectives, and what an audit calls them; no others may appear."""


class CollectiveCounter(TorchDispatchMode):
    """Counts what really is sent, whoever asked for it; torch's own counter breaks on hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        namespace, _, name = func._schema.name.partition("::")
        if "c10d" in namespace or namespace == "_dtensor":
            self.counts[KINDS[name]] += 1
        return func(*args, **(kwargs or {}))


def told(rows: Any) -> list[list[Any]]:
    return sorted(
        [
            row.op,
            row.decided_by,
            row.calls,
            row.bytes,
            dict(row.collectives),
            dict(row.moved),
            sorted(row.placements),
        ]
        for row in rows
    )


def collectives(rows: Any) -> dict[str, int]:
    """Count the collectives of all rows."""
    counts: dict[str, int] = {}
    for row in rows:
        for name, count in row.collectives.items():
            counts[name] = counts.get(name, 0) + count
    return counts
