"""A rule's rows, made concrete for the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from dtensor_registry.placements import (
    REPLICATE,
    Placement,
    Shard,
    ShardingPlaceholder,
    StridedShard,
)
from dtensor_registry.planner.problem import Grouped, Row, TensorInput


def fill_rows(
    rows: Iterable[Sequence[Placement | ShardingPlaceholder | None]],
    num_outputs: int,
    inputs: Sequence[TensorInput],
    masked: Sequence[int] = (),
) -> tuple[Row, ...]:
    """Make a rule's rows concrete for the inputs of a call.

    The all-Replicate row comes first unless the rule has one. Every placeholder is filled
    with each kind of sharding that some input has: plain first, then strided by split
    factor. Rows that come out equal are kept once, where they first stood.

    Args:
        rows: what the rule returned, in our placements.
        num_outputs: how many entries of a row are outputs.
        inputs: the tensors of the call.
        masked: outputs that are no tensor in this call.

    >>> x = TensorInput((4,), ((Shard(0),),))
    >>> rows = fill_rows([[ShardingPlaceholder(0), ShardingPlaceholder(0)]], 1, [x])
    >>> [", ".join(map(str, row)) for row in rows]
    ['R, R', 'S(0), S(0)']
    """
    factors = shard_kinds(inputs)
    width = num_outputs + len(inputs)
    replicate = tuple(None if at in masked else REPLICATE for at in range(width))
    filled: dict[Row, None] = {}
    given = [tuple(None if at in masked else p for at, p in enumerate(row)) for row in rows]
    if not any(all(p is None or p == REPLICATE for p in row) for row in given):
        filled[replicate] = None
    for row in given:
        if any(isinstance(p, ShardingPlaceholder) for p in row):
            for factor in factors:
                filled[tuple(_fill(p, factor) for p in row)] = None
        else:
            filled[tuple(_fill(p, None) for p in row)] = None
    return tuple(filled)


def grouped_dims(
    rows: Iterable[Sequence[Placement | ShardingPlaceholder | None]],
) -> tuple[Grouped, ...]:
    """List the dims that a rule says hold groups.

    That a dim holds groups is said of the dim, not of a row: it then holds for every row of the
    call. Of a dim that two rows divide differently no group of either may be cut.

    Args:
        rows: what the rule returned, in our placements.

    >>> grouped_dims([[ShardingPlaceholder(2, groups=8), ShardingPlaceholder(1)]])
    (Grouped(position=0, tensor_dim=2, groups=8),)
    """
    found: dict[tuple[int, int], int] = {}
    for row in rows:
        for position, entry in enumerate(row):
            if isinstance(entry, ShardingPlaceholder) and entry.groups is not None:
                key = (position, entry.dim)
                found[key] = gcd(found.get(key, 0), entry.groups)
    return tuple(Grouped(position, dim, groups) for (position, dim), groups in found.items())


def shard_kinds(inputs: Iterable[TensorInput]) -> tuple[int | None, ...]:
    """List the kinds of sharding among the inputs: None for plain, else the split factor.

    It is all that `fill_rows` reads of them, but for their number: a caller that knows what a
    rule reads can keep filled rows by that and this.

    >>> shard_kinds([TensorInput((8,), ((StridedShard(0, 2), REPLICATE, Shard(0)),))])
    (None, 2)
    """
    kinds: set[int | None] = set()
    for tensor in inputs:
        for placements in tensor.sources:
            for placement in placements:
                if isinstance(placement, Shard):
                    kinds.add(None)
                elif isinstance(placement, StridedShard):
                    kinds.add(placement.split_factor)
    return tuple(sorted(kinds, key=lambda factor: factor or 0))


def _fill(
    placement: Placement | ShardingPlaceholder | None, factor: int | None
) -> Placement | None:
    if not isinstance(placement, ShardingPlaceholder):
        return placement
    return Shard(placement.dim) if factor is None else StridedShard(placement.dim, factor)
