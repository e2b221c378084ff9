"""What the job prints: the losses side by side, and who decided which op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from main_job.comparison import BAR, Comparison
from main_job.metrics import Metrics
from main_job.torch_alone import Outcome


class Record(Protocol):
    """What `dtensor_registry.audit` notes of one op."""

    @property
    def op(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def decided_by(self) -> str: ...
    @property
    def placements(self) -> Sequence[str]: ...
    @property
    def collectives(self) -> Mapping[str, int]: ...
    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of the table, in a form that travels between processes.

    Attributes:
        op: as DTensor's messages write it.
        calls: how often it ran.
        decided_by: plugin name, `torch`, `decomposition` or `fallback`.
        torch_alone: what torch has for it: its rule, a handler, a decomposition, or no rule.
        placements: all that were chosen for it, outputs before inputs.
        collectives: how often each ran to bring inputs where the choice wants them.
        bytes: that this rank put into those collectives.
    """

    op: str
    calls: int
    decided_by: str
    torch_alone: str
    placements: tuple[str, ...]
    collectives: tuple[tuple[str, int], ...]
    bytes: int

    @classmethod
    def read(cls, record: Record, torch_alone: str) -> OpRow:
        """Copy a record of the audit, beside what torch has for the op."""
        return cls(
            op=record.op,
            calls=record.calls,
            decided_by=record.decided_by,
            torch_alone=torch_alone,
            placements=tuple(record.placements),
            collectives=tuple(sorted(record.collectives.items())),
            bytes=record.bytes,
        )


def losses_table(comparison: Comparison) -> Table:
    """One line per step: the loss of both runs and how far they are apart."""
    table = Table(title="Loss per step (nats per byte)")
    for heading in ("step", "one process", "four ranks", "relative difference"):
        table.add_column(heading, justify="right")
    rows = zip(comparison.plain, comparison.sharded, comparison.differences, strict=False)
    for step, (plain, sharded, difference) in enumerate(rows, start=1):
        table.add_row(str(step), f"{plain:.6f}", f"{sharded:.6f}", f"{difference:.1e}")
    return table


def ops_table(rows: Sequence[OpRow]) -> Table:
    """One line per op, the ones that move most bytes first."""
    table = Table(title="Every op that ran on DTensors (rank 0)", show_lines=True)
    table.add_column("op", overflow="fold")
    table.add_column("calls", justify="right")
    table.add_column("decided by")
    table.add_column("torch alone")
    table.add_column("placements: outputs <- inputs", overflow="fold")
    table.add_column("collectives")
    table.add_column("bytes", justify="right")
    for row in sorted(rows, key=lambda row: (-row.bytes, -row.calls, row.op)):
        table.add_row(
            row.op,
            f"{row.calls:,}",
            row.decided_by,
            row.torch_alone,
            # Text, not str: rich would read [..] in a str as markup.
            Text("\n".join(row.placements)),
            "\n".join(f"{count:,} {name}" for name, count in row.collectives),
            f"{row.bytes:,}",
        )
    return table


def deciders_line(rows: Sequence[OpRow]) -> str:
    """Sum up who decided how many ops and calls.

    >>> deciders_line([OpRow("acme.swiglu.default", 60, "acme", "no rule", ("R <- R",), (), 0)])
    'acme: 1 op, 60 calls'
    """
    ops = Counter(row.decided_by for row in rows)
    calls: Counter[str] = Counter()
    for row in rows:
        calls[row.decided_by] += row.calls
    return "; ".join(
        f"{name}: {ops[name]} op{'s' if ops[name] > 1 else ''}, {calls[name]:,} calls"
        for name in sorted(ops)
    )


def verdict_line(comparison: Comparison) -> str:
    """Say in one sentence whether the runs agree.

    >>> verdict_line(Comparison((1.0,), (1.5,)))
    'The losses PART: largest relative difference 5.0e-01 in 1 and 1 steps, bar 1e-04.'
    """
    what = "The losses agree" if comparison.agrees else "The losses PART"
    steps = f"{len(comparison.plain)} and {len(comparison.sharded)} steps"
    return (
        f"{what}: largest relative difference {comparison.largest:.1e} in {steps}, bar {BAR:.0e}."
    )


def calls_table(asked: Sequence[Outcome]) -> Table:
    """One line per call that was asked about without and with the registry."""
    table = Table(title="What torch alone does with calls of this job", show_lines=True)
    for heading in ("op", "torch alone", "with the registry", "decided by", "why"):
        table.add_column(heading, overflow="fold")
    for call in asked:
        table.add_row(
            call.op, Text(call.alone), Text(call.registered), call.decided_by, Text(call.why)
        )
    return table


def report(
    asked: Sequence[Outcome],
    comparison: Comparison,
    metrics: Sequence[Metrics],
    rows: Sequence[OpRow],
) -> RenderableType:
    """Everything the job found, in the order in which it is read."""
    return Group(
        *((calls_table(asked), Text()) if asked else ()),
        losses_table(comparison),
        *(
            Text(f"{run} predicts {found}")
            for run, found in zip(("one process", "four ranks"), metrics, strict=False)
        ),
        Text(),
        ops_table(rows),
        Text(f"{deciders_line(rows)}\n{verdict_line(comparison)}"),
    )
