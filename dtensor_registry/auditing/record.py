"""The record of a block: every DTensor op that ran, who decided it, and what it moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dtensor_registry.auditing.rows import AuditRow, LineRow, in_order, write_sum, write_table
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_patch.watch import OpRun, watching
from dtensor_registry.torch_runtime.decision import Kind

Place = tuple[SourceLine | None, bool]
"""A line of the program, and whether the call is part of its backward pass."""


@dataclass(slots=True)
class _Tally:
    kind: Kind
    calls: int = 0
    placements: dict[str, None] = field(default_factory=dict)
    moved: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    lines: dict[Place, list[int]] = field(default_factory=dict)
    reason: str = ""

    def add(self, run: OpRun) -> None:
        """Count a run of the op."""
        self.calls += 1
        counted = self.lines.setdefault((run.line, run.backward), [0, 0])
        counted[0] += 1
        counted[1] += run.bytes
        if run.choice:
            self.placements[run.choice] = None
        self.moved.update(run.moved)
        self.collectives.update(run.collectives)
        self.reason = run.reason

    def row(self, op: str, decided_by: str) -> AuditRow:
        """Sum the runs up."""
        lines = [LineRow(*place, *counted) for place, counted in self.lines.items()]
        lines.sort(key=lambda line: (-line.bytes, -line.calls, str(line)))
        return AuditRow(
            op,
            self.calls,
            self.kind,
            decided_by,
            tuple(self.placements),
            dict(self.moved),
            dict(sorted(self.collectives.items())),
            sum(line.bytes for line in lines),
            tuple(lines),
            self.reason,
        )


class Audit:
    """The record of a block; complete when the block has ended."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], _Tally] = {}

    @property
    def rows(self) -> tuple[AuditRow, ...]:
        """One row per op and decider; ops that need a rule first, then what moves most bytes."""
        return in_order([t.row(op, by) for (op, by), t in self._tallies.items()])

    def table(self) -> str:
        """Write all rows as a table of plain text."""
        return f"{write_table(self.rows)}\n\n{write_sum(self.rows)}"

    def __str__(self) -> str:
        return self.table()

    def enter(self, run: OpRun) -> None:
        """Enter one run of an op."""
        self._tallies.setdefault((run.op, run.decided_by), _Tally(run.kind)).add(run)


@contextmanager
def audit() -> Iterator[Audit]:
    """Record every DTensor op that runs in the block, on this rank and thread.

    It slows the block down: use it to look, not to train. Blocks may be nested.

    Yields:
        The record.
    """
    record = Audit()
    with watching(record.enter):
        yield record
