"""What an audit found, as values that print themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer

from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_runtime.decision import Kind

KINDS: tuple[Kind, ...] = ("none", "fallback", "plugin", "decomposition", "torch", "program")
"""All kinds; ops that need a rule come first."""

COLUMNS = ("op", "calls", "decided by", "moved", "collectives", "bytes", "line")


def _shown(line: SourceLine | None) -> str:
    return str(line or "?")


@dataclass(frozen=True, slots=True)
class LineRow:
    """The calls of one op from one line of the user's program.

    Attributes:
        line: where the call was written; None if no line of the program is on the stack.
        backward: whether the call computes the gradient of that line.
        calls: how many.
        bytes: bytes that this rank put into collectives for them.
    """

    line: Annotated[SourceLine | None, PlainSerializer(_shown, return_type=str)]
    backward: bool
    calls: int
    bytes: int

    def __str__(self) -> str:
        return f"{_shown(self.line)}{' (backward)' if self.backward else ''}"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """All calls of one op that were decided by one party.

    Attributes:
        op: the overload.
        calls: how many.
        kind: what kind of party decided.
        decided_by: a plugin, `torch`, `fallback <name>`, `decomposition`, `handler`, `nobody`, or
            `the program` for collectives outside any op, which stand under `(redistribute)`.
        placements: the distinct choices, as `outputs <- inputs`, one tensor per `;`.
        moved: how many inputs were redistributed, by `from -> to`.
        collectives: how many of each kind the calls needed.
        bytes: bytes that this rank put into them.
        lines: where the calls were written, the lines that cost most first.
        reason: why nobody decides, in torch's or the fallbacks' words.
    """

    op: str
    calls: int
    kind: Kind
    decided_by: str
    placements: tuple[str, ...]
    moved: Mapping[str, int]
    collectives: Mapping[str, int]
    bytes: int
    lines: tuple[LineRow, ...]
    reason: str = ""

    def cells(self) -> tuple[str, ...]:
        """Write the row under `COLUMNS`."""
        more = f" and {len(self.lines) - 1} more" if len(self.lines) > 1 else ""
        return (
            self.op,
            f"{self.calls:,}",
            self.decided_by,
            "; ".join(f"{count:,} x {move}" for move, count in self.moved.items()),
            ", ".join(f"{count:,} {name}" for name, count in self.collectives.items()),
            f"{self.bytes:,}",
            f"{self.lines[0]}{more}" if self.lines else "",
        )


def in_order(rows: Sequence[AuditRow]) -> tuple[AuditRow, ...]:
    """Sort rows: ops that need a rule first, then what moves most bytes, then by name."""

    def urgency(row: AuditRow) -> tuple[int, int, str, str]:
        needed = min(KINDS.index(row.kind), KINDS.index("plugin"))
        return needed, -row.bytes, row.op, row.decided_by

    return tuple(sorted(rows, key=urgency))


def write_table(rows: Sequence[AuditRow]) -> str:
    """Write rows as a table of plain text.

    >>> row = AuditRow("aten.mm.default", 2, "torch", "torch", (), {}, {"all_gather": 2}, 64, ())
    >>> print(write_table([row]))
    op                calls   decided by   moved   collectives    bytes   line
    aten.mm.default   2       torch                2 all_gather   64
    """
    lines = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    written = (
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in written)


def write_sum(rows: Sequence[AuditRow]) -> str:
    """Sum rows up in one line.

    >>> write_sum([AuditRow("aten.mm.default", 2, "torch", "torch", (), {}, {}, 0, ())])
    '1 op, 2 calls: torch 1; 0 bytes moved'
    """
    ops = [row for row in rows if row.kind != "program"]
    kinds = Counter(row.kind for row in ops)
    told = ", ".join(f"{kind} {kinds[kind]}" for kind in KINDS if kinds[kind])
    return (
        f"{counted(len({row.op for row in ops}), 'op')},"
        f" {counted(sum(row.calls for row in ops), 'call')}: {told or 'none ran'};"
        f" {counted(sum(row.bytes for row in rows), 'byte')} moved"
    )


def counted(number: int, noun: str) -> str:
    """Write how many there are of something.

    >>> counted(1, "op"), counted(1200, "call")
    ('1 op', '1,200 calls')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
