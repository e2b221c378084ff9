"""Batch norms that update running statistics: torch moves these first, and loses the update."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Replicate, Shard

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    PlacedCall,
    SingleDimStrategy,
    amended,
)

STATISTICS = ("running_mean", "running_var")
FIRST = 3
"""Where the ops have `running_mean`; `running_var` is next."""
CHANNELS = 1


def update_of_moved_statistics(call: PlacedCall) -> Compute | None:
    """Update statistics where the channels are, and bring them back to where the given ones are."""
    if not call.arguments["training"]:
        return None
    x = call.tensors["input"]
    given = [call.tensors[name] for name in STATISTICS if name in call.tensors]
    apart = len({tensor.placements for tensor in given}) > 1 or any(t.partials() for t in given)
    # torch cuts statistics where channels are cut, and writes to the pieces.
    follows = all(set(x.cuts(CHANNELS)) <= set(tensor.cuts(0)) for tensor in given)
    return Compute(_with_moved_statistics) if apart or not follows else None


def _with_moved_statistics(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    places = [Shard(0) if p == Shard(CHANNELS) else Replicate() for p in args[0].placements]
    given = args[FIRST : FIRST + len(STATISTICS)]
    moved = [statistic.redistribute(placements=places) for statistic in given]
    result = op(*args[:FIRST], *moved, *args[FIRST + len(STATISTICS) :], **kwargs)
    for statistic, updated in zip(given, moved, strict=True):
        statistic.copy_(updated)
    return result


_X = Held("float64", (3, 4))
_STATISTIC = Held("float64", (4,))
_PLACED = ("R, S(0), R", "S(1), R, R")
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "aten.native_batch_norm.default": (True, 0.5, 1e-5),
    "aten._native_batch_norm_legit.default": (True, 0.5, 1e-5),
}
"""The ops, and what follows the tensors of a call that updates statistics."""

NORMS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        list(_OPTIONS),
        amended(
            update_of_moved_statistics,
            because="running statistics are moved first, and the update of the copies is lost",
        ),
        shows=tuple(
            Counterexample(placed, (_X, None, None, _STATISTIC, _STATISTIC, *options), op=op)
            for op, options in _OPTIONS.items()
            for placed in _PLACED
        ),
    ),
)
