"""A row read against one call: which placements each output and each input has on a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dtensor_registry.placements import Partial, Placements, Shard, StridedShard, cut_groups
from dtensor_registry.rules.metadata import is_tensor
from dtensor_registry.rules.well_formed import groups_of, plain, problem
from dtensor_registry_kit.simulation.distribute import chunk
from dtensor_registry_kit.simulation.reference_run import ReferenceRun


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows turned to columns: for each output and input, its placements over the mesh dims."""

    outputs: tuple[Placements | None, ...]
    inputs: tuple[Placements, ...]
    grouped: tuple[tuple[Placements, int, int], ...] = ()
    """Placements of a tensor, one of its dims that holds groups, and how many."""


def layout_of(whole: ReferenceRun, rows: Sequence[Sequence[Any]]) -> Layout | str:
    """Read rows against a call, or say what is wrong with one."""
    outputs: list[list[Any]] = []
    inputs: list[list[Any]] = []
    for row in rows:
        slots = whole.outputs
        tensors = whole.tensor_outputs
        # A row leaves out the slots of what is no tensor, as torch 2.13 does, or holds None there.
        named = slots if _length(row) == len(slots) + len(whole.inputs) else tensors
        ranks = [value.dim() if is_tensor(value) else None for value in named]
        place = {id(value): index for index, value in enumerate(named)}
        tied = [(place[id(slots[output])], source) for output, source in whole.tied]
        fault = problem(row, len(named), [tensor.dim() for tensor in whole.inputs], ranks, tied)
        if fault is not None:
            return fault
        entries = list(row)
        placed = iter(entries[: len(named)])
        if named is slots:
            outputs.append(list(placed))
        else:
            outputs.append([next(placed) if is_tensor(value) else None for value in slots])
        inputs.append(entries[len(named) :])
    given = [*zip(*outputs, strict=True), *zip(*inputs, strict=True)]
    columns: list[Any] = [
        None if None in entries else tuple(map(plain, entries)) for entries in given
    ]
    count = len(whole.outputs)
    return Layout(tuple(columns[:count]), tuple(columns[count:]), _grouped(given, columns))


def _grouped(
    given: Sequence[tuple[Any, ...]], columns: Sequence[Placements | None]
) -> tuple[tuple[Placements, int, int], ...]:
    return tuple(
        (column, entry.dim, groups)
        for entries, column in zip(given, columns, strict=True)
        if column is not None
        for entry in entries
        if (groups := groups_of(entry)) is not None
    )


def _length(row: object) -> int:
    return len(row) if isinstance(row, (list, tuple)) else -1


def unsimulated(layout: Layout) -> str | None:
    """Say why placements cannot be simulated, or None."""
    columns = (*layout.inputs, *(column for column in layout.outputs if column is not None))
    for column in columns:
        kinds = {p.reduce_op for p in column if isinstance(p, Partial)}
        if len(kinds) > 1:
            return "partials of different kinds on one tensor"
        for placement in column:
            if isinstance(placement, StridedShard):
                return "strided shards cannot be simulated"
            if isinstance(placement, Partial) and placement.native is not None:
                return f"{placement} carries a state of its own and cannot be simulated"
    return None


def cuts_a_group(layout: Layout, mesh: tuple[int, ...]) -> str | None:
    """Name a dim whose groups the ranks cannot share evenly, or None."""
    reasons = (cut_groups(column, mesh, dim, groups) for column, dim, groups in layout.grouped)
    return next(filter(None, reasons), None)


def too_small(whole: ReferenceRun, layout: Layout, mesh: tuple[int, ...]) -> str | None:
    """Name a dim that has fewer elements than the ranks that share it, or None."""
    for position, (tensor, column) in enumerate(zip(whole.inputs, layout.inputs, strict=True)):
        pieces: dict[int, int] = {}
        for placement, ranks in zip(column, mesh, strict=True):
            if isinstance(placement, Shard):
                dim = placement.tensor_dim
                pieces[dim] = pieces.get(dim, 1) * ranks
                size = tensor.shape[dim]
                if size < pieces[dim]:
                    return (
                        f"dim {dim} of input {position} has {size} elements for {pieces[dim]} ranks"
                    )
    return None


def lacks_data(whole: ReferenceRun, given: Sequence[Sequence[torch.Tensor]], rank: int) -> bool:
    """Say whether a rank holds nothing of a dim of an input that has something."""
    return any(
        size and not held
        for pieces, tensor in zip(given, whole.inputs, strict=True)
        for held, size in zip(pieces[rank].shape, tensor.shape, strict=True)
    )


def starved(
    whole: ReferenceRun,
    layout: Layout,
    mesh: tuple[int, ...],
    given: Sequence[Sequence[torch.Tensor]],
) -> str | None:
    """Find a rank that has none of a dim of size 1, yet must make a part of a sharded output.

    That is the row which shards a dim that is broadcast: no mesh would make it right.
    """
    if len(mesh) > 1:
        return None
    for position, (placement,) in enumerate(layout.inputs):
        tensor = whole.inputs[position]
        if not isinstance(placement, Shard) or tensor.shape[placement.tensor_dim] != 1:
            continue
        for index, column in enumerate(layout.outputs):
            if column is None or not isinstance(column[0], Shard) or not tensor.numel():
                continue
            owed = chunk(whole.outputs[index], column[0].tensor_dim, 1, mesh[0])
            if owed.numel():
                shapes = ", ".join(str(tuple(pieces[1].shape)) for pieces in given)
                return (
                    f"rank 1 with local shapes {shapes} has nothing to make"
                    f" {tuple(owed.shape)} of output {index} from"
                )
    return None
