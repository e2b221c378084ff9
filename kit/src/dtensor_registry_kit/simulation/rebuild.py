"""Compare what the ranks hold with the whole, as placements say it is spread over a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from dtensor_registry.placements import Partial, Placements, Shard
from dtensor_registry.rules.metadata import is_tensor
from dtensor_registry_kit.simulation.compare import Difference, difference, magnitude
from dtensor_registry_kit.simulation.distribute import chunk, reduce_parts

_ADDING = ("sum", "avg", "product")


def output_difference(
    got: Sequence[Any],
    want: Any,
    placements: Placements | None,
    mesh: tuple[int, ...],
    relative: float,
) -> tuple[str, Difference] | None:
    """Compare one output of every rank with that of the whole run.

    Without placements (a number, or None) every rank must have what the whole run has.
    """
    if placements is not None and all(is_tensor(value) for value in got):
        return rebuild_difference(got, want, placements, mesh, relative)
    for rank, value in enumerate(got):
        gap = slot_difference(value, want, relative)
        if gap is not None:
            return f" on rank {rank}", gap
    return None


def slot_difference(got: Any, want: Any, relative: float) -> Difference | None:
    """Compare one thing that an op returned, tensor or not, with another.

    >>> print(slot_difference(3, 4, 0.0))
    3, whole run 4
    """
    if is_tensor(got) and is_tensor(want):
        return difference(got, want, relative)
    if type(got) is type(want) and (got == want or got != got):
        return None
    return Difference(f"{got!r}, whole run {want!r}")


def rebuild_difference(
    got: Sequence[torch.Tensor],
    want: torch.Tensor,
    placements: Placements,
    mesh: tuple[int, ...],
    relative: float,
) -> tuple[str, Difference] | None:
    """Compare what the ranks hold with a whole tensor, as the placements say it is spread.

    A shard must be exactly the piece that DTensor would cut, on its own rank: a wrong
    boundary gives a wrong tensor later although the pieces concatenate to the right one.

    Returns:
        Where they differ (" on rank 1", or " reduced over the ranks"), and how; or None.
    """
    scale = magnitude([want, *got])
    adds_up = any(isinstance(p, Partial) and p.reduce_op in _ADDING for p in placements)
    return _differs(got, want, placements, mesh, _Limits(relative, scale, adds_up), "")


@dataclass(frozen=True, slots=True)
class _Limits:
    """What counts as the same; see `difference`."""

    relative: float
    scale: float
    finite_only: bool


def _differs(
    got: Sequence[torch.Tensor],
    want: torch.Tensor,
    placements: Placements,
    mesh: tuple[int, ...],
    limits: _Limits,
    where: str,
) -> tuple[str, Difference] | None:
    if not mesh:
        gap = difference(
            got[0], want, limits.relative, limits.scale, finite_only=limits.finite_only
        )
        return None if gap is None else (where, gap)
    first, ranks, stride = placements[0], mesh[0], prod(mesh[1:])
    groups = [got[rank * stride : (rank + 1) * stride] for rank in range(ranks)]
    if isinstance(first, Partial):
        try:
            summed = [reduce_parts(parts, first.reduce_op) for parts in zip(*groups, strict=True)]
        except (NotImplementedError, RuntimeError) as error:
            return where, Difference(f"cannot be reduced as {first}: {error}")
        message = f"{where}, reduced over the ranks as {first},"
        return _differs(summed, want, placements[1:], mesh[1:], limits, message)
    for rank, group in enumerate(groups):
        target = chunk(want, first.tensor_dim, rank, ranks) if isinstance(first, Shard) else want
        message = f"{where} on rank {rank}" if not where else f"{where}, {rank}"
        found = _differs(group, target, placements[1:], mesh[1:], limits, message)
        if found is not None:
            return found
    return None
