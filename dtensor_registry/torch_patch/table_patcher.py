"""The loan of torch's tables: what was there, what we wrote, and the exact way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from torch._ops import OpOverload
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo

from dtensor_registry.torch_runtime.compat import RULE_TABLES
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator

Cell: TypeAlias = tuple[str, OpOverload]
"""One entry of one table: the table's name and the op."""

HANDLERS = "_custom_op_handlers"
"""The dispatcher's table of functions that run an op themselves, asked before everything else."""


def has_rule(op: OpOverload) -> bool:
    """Say whether a table of torch's has a rule for an op now, torch's own or a lent one."""
    prop = propagator()
    return any(op in getattr(prop, table) for table in RULE_TABLES)


class _Absent:
    """Stands for an entry that is not in a table; None could be a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


class Ledger:
    """Book of the loan: for each cell that we wrote, torch's value and ours."""

    def __init__(self) -> None:
        # torch's values and ours; one attribute, so that they change together.
        self._book: tuple[dict[Cell, Any], dict[Cell, Any]] = ({}, {})

    def original(self, table: str, op: OpOverload) -> Any:
        """What torch has in a cell, whatever we wrote over it; None if nothing."""
        cell = (table, op)
        originals, _ = self._book
        value = originals[cell] if cell in originals else read(cell)
        return None if value is ABSENT else value

    def ops(self, table: str) -> list[OpOverload]:
        """List the ops of a table whose cells we wrote."""
        return [op for name, op in self._book[0] if name == table]

    def give(self, cells: Mapping[Cell, Any]) -> None:
        """Give torch entries of its own: at once, or when what we wrote over them is undone.

        Args:
            cells: value for each cell; ABSENT for one that must not be there.
        """
        originals, written = self._book
        for cell, value in cells.items():
            if cell not in originals:
                store(cell, value)
        self._book = {c: cells.get(c, value) for c, value in originals.items()}, written

    def write(self, wanted: Mapping[Cell, Any]) -> list[str]:
        """Make torch's tables hold exactly `wanted` on loan and torch's own values elsewhere.

        On any exception the tables are as they were before the call.

        Args:
            wanted: value for each cell; ABSENT for one that must not be there.

        A cell that other code has overwritten since is written again only when something else
        is wanted there than before: then that code's value is what will be put back.

        Returns:
            Cells to be given back that other code has overwritten since we wrote them. These are
            left as found.
        """
        undo: list[tuple[Cell, Any]] = []
        before = self._book
        originals, written = dict(before[0]), dict(before[1])
        foreign: list[str] = []
        try:
            for cell in dict.fromkeys((*written, *wanted)):
                current = read(cell)
                overwritten = cell in written and current is not written[cell]
                if overwritten and cell not in wanted:
                    foreign.append(f"{cell[1]} in {cell[0]}")
                    del written[cell], originals[cell]
                    continue
                if overwritten and wanted[cell] is written[cell]:
                    continue
                if overwritten or cell not in written:
                    originals[cell] = current
                value = wanted.get(cell, originals[cell])
                if value is not current:
                    undo.append((cell, current))
                    store(cell, value)
                if cell in wanted:
                    written[cell] = value
                else:
                    del originals[cell]
                    written.pop(cell, None)
            self._book = originals, written
        except BaseException:
            for cell, value in reversed(undo):
                store(cell, value)
            self._book = before
            raise
        return foreign

    def __len__(self) -> int:
        return len(self._book[1])


def table_entries(name: str) -> Any:
    """Find one of torch's tables."""
    return getattr(dispatcher() if name == HANDLERS else propagator(), name)


def read(cell: Cell) -> Any:
    """What a cell holds now; ABSENT if nothing."""
    table, op = cell
    return table_entries(table).get(op, ABSENT)


def store(cell: Cell, value: Any) -> None:
    """Put a value into a cell, or take the cell out; by the loan alone, which keeps the book."""
    table, op = cell
    entries = table_entries(table)
    if value is ABSENT:
        entries.pop(op, None)
    else:
        entries[op] = value


LEDGER = Ledger()
"""The one loan of this process."""


def torch_schema_info(op: OpOverload) -> RuntimeSchemaInfo:
    """What torch puts in its cache key for an op, by its own tables; mostly that is nothing."""
    for table in ("op_to_schema_info", "op_to_schema_info_for_single_dim_strategy"):
        info = LEDGER.original(table, op)
        if info is not None:
            assert isinstance(info, RuntimeSchemaInfo)
            return info
    return RuntimeSchemaInfo()
