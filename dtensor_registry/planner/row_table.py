"""Rows told apart by tensor: all that a search needs to know of rows alone.

A rule gives the same rows for most of its calls, so this is worked out once for each set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dtensor_registry.placements import Partial, Placement, Shard, StridedShard
from dtensor_registry.planner.problem import Row
from dtensor_registry.planner.redistribution import needs_torch
from dtensor_registry.planner.validity import mixes_with_nothing


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of partial that one tensor has in a set of rows, as bits.

    Attributes:
        of: for each placement the bit of its kind, 0 for one that is not partial.
        exclusive: the bits of those that mix with no other.
    """

    of: tuple[int, ...]
    exclusive: int

    @classmethod
    def among(cls, placements: Sequence[Placement | None]) -> Kinds | None:
        """Tell kinds apart, or return None if no two of them clash.

        >>> Kinds.among([Partial("sum"), Partial("avg"), Partial("max"), Shard(0)])
        Kinds(of=(1, 2, 4, 0), exclusive=4)
        """
        kinds = list(dict.fromkeys([p for p in placements if isinstance(p, Partial)]))
        exclusive = sum(1 << bit for bit, kind in enumerate(kinds) if mixes_with_nothing(kind))
        if len(kinds) < 2 or not exclusive:
            return None
        bits = {kind: 1 << bit for bit, kind in enumerate(kinds)}
        return cls(tuple(bits[p] if isinstance(p, Partial) else 0 for p in placements), exclusive)

    def clash(self, kinds: int) -> bool:
        """Say whether some kinds do not stand together on one tensor."""
        return bool(kinds & self.exclusive) and bool(kinds & (kinds - 1))


@dataclass(frozen=True, slots=True)
class InputEntries:
    """What one input has in each row.

    Attributes:
        options: its distinct placements, in order of first row.
        index: where in `options` a placement stands.
        of_row: for each row, the index of its option.
        cuts: for each option the tensor dim that it cuts and its split factor (1 for a plain
            shard), or None if it cuts none.
        kinds: the kinds of partial of the options, if some clash.
        needs_torch: whether only torch can price the moves to some option.
    """

    options: tuple[Placement, ...]
    index: dict[Placement, int]
    of_row: tuple[int, ...]
    cuts: tuple[tuple[int, int] | None, ...]
    kinds: Kinds | None
    needs_torch: bool


@dataclass(frozen=True, slots=True)
class OutputEntries:
    """What one output has in each row.

    Attributes:
        of_row: for each row its placement, or None.
        kinds: the kinds of partial of the rows, if some clash.
        masked: whether it is no tensor in some row.
    """

    of_row: tuple[Placement | None, ...]
    kinds: Kinds | None
    masked: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A set of rows, told apart by tensor.

    Attributes:
        inputs: for each input its entries.
        outputs: for each output its entries.
        options: for each row the options of all inputs.
        rows_of: the other way round: the rows that have just these options.
    """

    inputs: tuple[InputEntries, ...]
    outputs: tuple[OutputEntries, ...]
    options: tuple[tuple[int, ...], ...]
    rows_of: dict[tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=1024)
def row_table(rows: tuple[Row, ...], num_outputs: int) -> Table:
    """Look up the table of a set of rows.

    Args:
        rows: filled rows, outputs first.
        num_outputs: how many entries of each row are outputs.

    >>> shard = Shard(0)
    >>> row_table(((None, shard), (shard, shard), (shard, Shard(1))), num_outputs=1).rows_of
    {(0,): (0, 1), (1,): (2,)}
    """
    columns = list(zip(*rows, strict=True))
    inputs = tuple(_input_entries(column) for column in columns[num_outputs:])
    options = tuple(tuple(entries.of_row[row] for entries in inputs) for row in range(len(rows)))
    rows_of: dict[tuple[int, ...], tuple[int, ...]] = {}
    for row, there in enumerate(options):
        rows_of[there] = (*rows_of.get(there, ()), row)
    outputs = tuple(
        OutputEntries(column, Kinds.among(column), None in column)
        for column in columns[:num_outputs]
    )
    return Table(inputs, outputs, options, rows_of)


def _input_entries(column: Sequence[Placement | None]) -> InputEntries:
    placements = [placement for placement in column if placement is not None]
    index: dict[Placement, int] = {}
    of_row = tuple(index.setdefault(placement, len(index)) for placement in placements)
    options = tuple(index)
    cuts = tuple(_cut(option) for option in options)
    return InputEntries(
        options, index, of_row, cuts, Kinds.among(options), needs_torch(options, ())
    )


def _cut(option: Placement) -> tuple[int, int] | None:
    if isinstance(option, Shard):
        return (option.tensor_dim, 1)
    return (option.tensor_dim, option.split_factor) if isinstance(option, StridedShard) else None
