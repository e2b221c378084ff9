"""Placements across the border: torch's classes here, our values there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from torch.distributed import tensor as dtensor
from torch.distributed.tensor import placement_types
from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    ShardingPlaceholder,
    StridedShard,
)


def from_torch(placement: Any) -> Placement:
    """Read one of torch's placements.

    A partial that knows more than its reduction keeps torch's object inside: the very object,
    since it holds the state of one call, which equality does not see.

    Raises:
        TypeError: for something that is no placement.
    """
    if isinstance(placement, dtensor.Partial) and type(placement) is not dtensor.Partial:
        return Partial(placement.reduce_op, placement)
    return _plain(placement)


@lru_cache(maxsize=4096)
def _plain(placement: Any) -> Placement:
    if isinstance(placement, dtensor.Replicate):
        return REPLICATE
    if isinstance(placement, placement_types._StridedShard):
        return StridedShard(placement.dim, int(placement.split_factor))
    if isinstance(placement, dtensor.Shard):
        return Shard(placement.dim)
    if isinstance(placement, dtensor.Partial):
        return Partial(placement.reduce_op)
    raise TypeError(f"{placement!r} is no placement")


def to_torch(placement: Placement) -> Any:
    """Write a placement as torch's own."""
    if isinstance(placement, Partial) and placement.native is not None:
        return placement.native
    return _torchs(placement)


@lru_cache(maxsize=4096)
def _torchs(placement: Placement) -> Any:
    if isinstance(placement, Shard):
        return dtensor.Shard(placement.tensor_dim)
    if isinstance(placement, StridedShard):
        return placement_types._StridedShard(
            placement.tensor_dim, split_factor=placement.split_factor
        )
    if isinstance(placement, Partial):
        return dtensor.Partial(placement.reduce_op)
    return dtensor.Replicate()


def placements_from_torch(placements: Iterable[Any]) -> Placements:
    """Read the placements of a spec."""
    return tuple(from_torch(placement) for placement in placements)


def placements_to_torch(placements: Iterable[Placement]) -> tuple[Any, ...]:
    """Write placements for a spec."""
    return tuple(to_torch(placement) for placement in placements)


def row_from_rule(row: Sequence[Any]) -> tuple[Placement | ShardingPlaceholder | None, ...]:
    """Read a row that a rule returned, in torch's placements, ours, or both."""
    return tuple(_entry_from_rule(entry) for entry in row)


def row_to_torch(row: Iterable[Placement | ShardingPlaceholder | None]) -> list[Any]:
    """Write a row as torch's own expansion reads it."""
    return [
        None
        if entry is None
        else _ShardingPlaceholder(entry.dim)
        if isinstance(entry, ShardingPlaceholder)
        else to_torch(entry)
        for entry in row
    ]


def _entry_from_rule(entry: Any) -> Placement | ShardingPlaceholder | None:
    if entry is None or isinstance(
        entry, (ShardingPlaceholder, Replicate, Shard, StridedShard, Partial)
    ):
        return entry
    if isinstance(entry, _ShardingPlaceholder):
        return ShardingPlaceholder(entry.dim)
    return from_torch(entry)
