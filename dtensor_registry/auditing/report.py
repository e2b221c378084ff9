"""What an audit of a program reports: as a value, as notes beside a table, and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dtensor_registry.auditing.program import ProgramAudit
from dtensor_registry.auditing.rows import AuditRow
from dtensor_registry.mesh_sizes import MeshSizes


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What `audit --json` prints.

    Attributes:
        program: as named on the command line.
        mesh: likewise.
        ranks: size of the world.
        ops: the ops that need a rule first, then what moves most bytes.
        lacking: the ops that nobody has a rule for.
        stopped: why the program did not come to its end, and where, or None.
        made_up: line -> how often it read a value that had to be made up.
        in_force: whether rules of the registry were in force.
    """

    program: str
    mesh: str
    ranks: int
    ops: tuple[AuditRow, ...]
    lacking: tuple[str, ...]
    stopped: str | None
    made_up: dict[str, int]
    in_force: bool

    @classmethod
    def of(cls, program: str, mesh: MeshSizes, audited: ProgramAudit) -> AuditReport:
        """Put together what is reported of an audited program."""
        return cls(
            program=program,
            mesh=str(mesh),
            ranks=mesh.ranks,
            ops=audited.rows,
            lacking=tuple(row.op for row in audited.lacking),
            stopped=audited.stopped,
            made_up=audited.made_up,
            in_force=audited.is_hosted,
        )

    @property
    def title(self) -> str:
        """What was run, and on what."""
        return f"{self.program} as rank 0 of {self.ranks}; nothing was allocated or sent"

    def notes(self) -> Iterator[str]:
        """Say of what the table does not speak."""
        if self.stopped is not None:
            said = self.stopped.replace("\n", "\n  ")
            ended = "the program did not come to its end; the audit is of what ran until then"
            yield f"{ended}\n  {said}"
        if self.made_up:
            times = sum(self.made_up.values())
            yield (
                f"{times} time{'' if times == 1 else 's'} the program read a value of a tensor that"
                f" has none here; it was given 1, or False ({', '.join(self.made_up)})"
            )
        if any(op.kind != "program" for op in self.ops) and not self.in_force:
            yield (
                "no rules of the registry were in force: the program does not install it\n"
                "  To see what it would do:  dtensor-registry audit --install ..."
            )
