"""What can be said of a row without running anything: its length, types, dims and reductions.

The host asks this of every row that a plugin's rule returns, each time a decision is
made, so it is written to cost microseconds and to need no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dtensor_registry.placements import (
    REDUCE_OPS,
    REPLICATE,
    Partial,
    Placement,
    Replicate,
    Shard,
    ShardingPlaceholder,
    StridedShard,
    show_placements,
    show_sides,
)

_SHARDS = frozenset({"Shard", "ShardingPlaceholder", "_ShardingPlaceholder"})
_STRIDED = frozenset({"StridedShard", "_StridedShard"})


def plain(entry: Any) -> Placement | None:
    """Read one entry of a row as one of our placements; a placeholder becomes a plain shard.

    torch's classes are known by name: this floor runs without torch, and the private ones
    among them have moved between torch versions.

    Returns:
        The placement, or None for an entry that is no placement at all.

    >>> from dtensor_registry.placements import ShardingPlaceholder
    >>> plain(ShardingPlaceholder(1)), plain("S(1)")
    (Shard(tensor_dim=1), None)
    """
    name = type(entry).__name__
    if name in _SHARDS:
        return entry if isinstance(entry, Shard) else Shard(entry.dim)
    if name == "Replicate":
        return REPLICATE
    if name == "Partial":
        return entry if isinstance(entry, Partial) else Partial(entry.reduce_op)
    if name in _STRIDED:
        if isinstance(entry, StridedShard):
            return entry
        return StridedShard(entry.dim, entry.split_factor)
    if any(parent.__name__ == "Partial" for parent in type(entry).__mro__):
        return Partial(str(entry.reduce_op), native=entry)
    return None


def groups_of(entry: Any) -> int | None:
    """Say how many groups a dim holds that an entry cuts, or None if it may be cut anywhere.

    >>> groups_of(ShardingPlaceholder(1, groups=8)), groups_of(Shard(1))
    (8, None)
    """
    return entry.groups if isinstance(entry, ShardingPlaceholder) else None


def problem(
    row: Any,
    num_outputs: int,
    input_ranks: Sequence[int],
    output_ranks: Sequence[int | None] | None = None,
    tied: Sequence[tuple[int, int]] = (),
) -> str | None:
    """Say what is wrong with a row on its face, or None.

    Args:
        row: what a rule returned as one of its rows.
        num_outputs: how many entries of the row belong to outputs.
        input_ranks: number of dims of every tensor input, in row order.
        output_ranks: number of dims of every output; None for one that is no tensor. Leave it
            out where the outputs are not known yet.
        tied: pairs (output, input) that are one tensor, as in an in-place or `out=` op:
            they must have one placement.

    >>> print(problem([Shard(0), Shard(-1)], 1, [2]))
    input 0 has S(-1): tensor dims in rows are counted from the front; for 2 dims write S(1)
    >>> problem([Shard(0), Shard(0)], 1, [2], [2]) is None
    True
    """
    if not isinstance(row, (list, tuple)):
        return f"a row is a list of placements, this one is {_named(row)}"
    expected = num_outputs + len(input_ranks)
    if len(row) != expected:
        return (
            f"the row has {len(row)} entries, but the op has {num_outputs} tensor output(s) and"
            f" {len(input_ranks)} tensor input(s) here: {expected} entries"
        )
    for position, entry in enumerate(row):
        is_output = position < num_outputs
        if not is_output:
            rank: int | None = input_ranks[position - num_outputs]
        elif output_ranks is None:
            rank = None
        else:
            rank = output_ranks[position]
            if rank is None and entry is not None:
                return f"output {position} is no tensor in this call, but has {_shown(entry)}"
        if entry is None:
            if is_output and (output_ranks is None or rank is None):
                continue
            return f"{_place(position, num_outputs)} is a tensor, but has no placement (None)"
        fault = _entry_problem(entry, rank)
        if fault is not None:
            return f"{_place(position, num_outputs)} {fault}"
    for output, source in tied:
        ours, theirs = plain(row[output]), plain(row[num_outputs + source])
        if ours != theirs:
            return (
                f"output {output} is the same tensor as input {source}, but has {ours} where"
                f" the input has {theirs}; a mutated argument keeps its placement"
            )
    return None


def _entry_problem(entry: Any, rank: int | None) -> str | None:
    """Say what is wrong with one placement of a tensor of `rank` dims (None: not known)."""
    placement = plain(entry)
    if placement is None:
        return (
            f"has {_named(entry)}, which is no placement; use Shard, ShardingPlaceholder,"
            " REPLICATE or Partial"
        )
    if isinstance(placement, Replicate):
        return None
    if isinstance(placement, Partial):
        if placement.native is None and placement.reduce_op not in REDUCE_OPS:
            return f"has {placement}: a reduction is one of {', '.join(REDUCE_OPS)}"
        return None
    dim = placement.tensor_dim
    if isinstance(dim, bool) or not isinstance(dim, int):
        return f"has a shard on {_named(dim)}; a tensor dim is an int"
    if dim < 0:
        advice = f"; for {rank} dims write S({dim + rank})" if rank and -dim <= rank else ""
        return f"has {placement}: tensor dims in rows are counted from the front{advice}"
    if rank is not None and dim >= rank:
        return f"has {placement}, but is a {rank}-dim tensor"
    return None


def show_row(row: Any, num_inputs: int) -> str:
    """Print a row as `outputs <- inputs`; what is no placement is printed as Python does.

    >>> show_row([Shard(0), Shard(0), REPLICATE], 2)
    'S(0) <- S(0), R'
    """
    if not isinstance(row, (list, tuple)):
        return repr(row)
    cut = max(len(row) - num_inputs, 0)
    return show_sides(map(_shown, row[:cut]), map(_shown, row[cut:]))


def for_any_groups(shown: str) -> str:
    """Make a printed row one for calls of all sizes: how many groups there are depends on them.

    >>> for_any_groups("S(2)/8 <- S(1)")
    'S(2)/g <- S(1)'
    """
    return re.sub(r"\)/\d+", ")/g", shown)


def _shown(entry: Any) -> str:
    if groups_of(entry) is not None:
        return str(entry)
    placement = plain(entry)
    return repr(entry) if placement is None and entry is not None else show_placements([placement])


def _named(value: object) -> str:
    return f"{value!r} of type {type(value).__name__}"


def _place(position: int, num_outputs: int) -> str:
    if position < num_outputs:
        return f"output {position}"
    return f"input {position - num_outputs}"
