"""`dtensor-registry audit PROGRAM`: which ops a program runs, who decides them, what it costs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import (
    print_json,
    print_lines,
    print_table,
    print_warnings,
    without_plugin_warnings,
)
from dtensor_registry.cli.output_file import check_destination
from dtensor_registry.cli.pages import render, write_page
from dtensor_registry.errors import NotationError, SettingsError
from dtensor_registry.mesh_sizes import MeshSizes, parse_mesh
from dtensor_registry.settings import read_settings

if TYPE_CHECKING:
    from dtensor_registry.auditing.program import ProgramAudit
    from dtensor_registry.auditing.rows import AuditRow

STYLES = {"nobody": "red"}
"""Colours of deciders."""


class AuditedLine(BaseModel):
    """The calls of one op from one line of the program."""

    model_config = ConfigDict(frozen=True)

    line: str
    backward: bool
    calls: int
    bytes: int


class AuditedOp(BaseModel):
    """All calls of one op that were decided by one party, as `AuditRow` has them."""

    model_config = ConfigDict(frozen=True)

    op: str
    calls: int
    kind: str
    decided_by: str
    placements: tuple[str, ...]
    moved: dict[str, int]
    collectives: dict[str, int]
    bytes: int
    lines: tuple[AuditedLine, ...]
    reason: str


class AuditReport(BaseModel):
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

    model_config = ConfigDict(frozen=True)

    program: str
    mesh: str
    ranks: int
    ops: tuple[AuditedOp, ...]
    lacking: tuple[str, ...]
    stopped: str | None
    made_up: dict[str, int]
    in_force: bool


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program",
        metavar="PROGRAM",
        help="a file, or module:function, which is called without arguments; what follows -- is"
        " the program's own",
    )
    parser.add_argument(
        "--mesh",
        metavar="SIZES",
        type=_mesh,
        default="8",
        help="size of the world, as 2x4 or 8 (default 8); the program makes its mesh itself",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="put the installed plugins in force first, for a program that does not",
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page as well")


def _mesh(text: str) -> MeshSizes:
    try:
        return parse_mesh(text)
    except NotationError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.problem}") from error


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()  # a wrong one shows before anything is run
    if Path(arguments.program).is_dir():
        raise SettingsError(f"{arguments.program}: it is a folder; name a file of it")
    if arguments.html is not None:
        check_destination(arguments.html, "--html")
    # Here, since importing it imports torch, which `plugins` and `--help` must not.
    from dtensor_registry.auditing.program import audit_program
    from dtensor_registry.installation import install

    with without_plugin_warnings(), install(settings) if arguments.install else nullcontext():
        audited = audit_program(arguments.program, arguments.rest, arguments.mesh.ranks)
    report = _report(arguments.program, arguments.mesh, audited)
    if arguments.html is not None:
        write_page(arguments.html, page(report))
    if arguments.json:
        print_json(report)
    else:
        _print(report, audited)
    print_warnings(list(_notes(report)))
    return PROBLEM if report.lacking or report.stopped else FINE


def _report(program: str, mesh: MeshSizes, audited: ProgramAudit) -> AuditReport:
    return AuditReport(
        program=program,
        mesh=str(mesh),
        ranks=mesh.ranks,
        ops=tuple(map(_op, audited.rows)),
        lacking=tuple(row.op for row in audited.lacking),
        stopped=audited.stopped,
        made_up=audited.made_up,
        in_force=audited.is_hosted,
    )


def _op(row: AuditRow) -> AuditedOp:
    return AuditedOp(
        op=row.op,
        calls=row.calls,
        kind=row.kind,
        decided_by=row.decided_by,
        placements=row.placements,
        moved=dict(row.moved),
        collectives=dict(row.collectives),
        bytes=row.bytes,
        lines=tuple(
            AuditedLine(
                line=str(line.line or "?"),
                backward=line.backward,
                calls=line.calls,
                bytes=line.bytes,
            )
            for line in row.lines
        ),
        reason=row.reason,
    )


def title(report: AuditReport) -> str:
    """Say what was run, and on what."""
    return f"{report.program} as rank 0 of {report.ranks}; nothing was allocated or sent"


def _print(report: AuditReport, audited: ProgramAudit) -> None:
    from dtensor_registry.auditing.rows import COLUMNS, write_sum

    print_lines(title(report), "")
    if audited.rows:
        print_table(COLUMNS, [row.cells() for row in audited.rows], STYLES)
        print_lines("")
    print_lines(write_sum(audited.rows))
    if audited.lacking:
        print_lines(
            "",
            "Nobody has a rule for these; what they return was made up from whole tensors:",
            *(f"  {row.op}: {row.reason}" for row in audited.lacking),
            "  Write rules:  docs/write-a-plugin.md",
            "  or run them on whole tensors:  DTENSOR_REGISTRY_FALLBACK__MODE=warn",
        )


def _notes(report: AuditReport) -> Iterator[str]:
    """Say of what the table does not speak."""
    if report.stopped is not None:
        said = report.stopped.replace("\n", "\n  ")
        yield f"the program did not come to its end; the audit is of what ran until then\n  {said}"
    if report.made_up:
        times = sum(report.made_up.values())
        yield (
            f"{times} time{'' if times == 1 else 's'} the program read a value of a tensor that has"
            f" none here; it was given 1, or False ({', '.join(report.made_up)})"
        )
    if any(op.kind != "program" for op in report.ops) and not report.in_force:
        yield (
            "no rules of the registry were in force: the program does not install it\n"
            "  To see what it would do:  dtensor-registry audit --install ..."
        )


def page(report: AuditReport) -> str:
    """Write a report as one self-contained HTML page.

    Raises:
        MissingPackageError: if jinja2 is not installed.
    """
    lines = [(op, line) for op in report.ops for line in op.lines]
    return render(
        "audit.html",
        title=f"Audit of {report.program}",
        summary=title(report),
        report=report,
        notes=list(_notes(report)),
        op_columns=_headings("op", "calls", "decided by", "moved", "collectives", "bytes"),
        op_rows=[
            {
                "chosen": False,
                "cells": [
                    _cell(op.op),
                    _number(op.calls),
                    _cell(op.decided_by),
                    _cell("; ".join(f"{count:,} x {move}" for move, count in op.moved.items())),
                    _cell(", ".join(f"{n:,} {name}" for name, n in op.collectives.items())),
                    _number(op.bytes, max(op.bytes for op in report.ops)),
                ],
            }
            for op in report.ops
        ],
        line_columns=_headings("line", "op", "calls", "bytes"),
        line_rows=[
            {
                "chosen": False,
                "cells": [
                    _cell(f"{line.line}{' (backward)' if line.backward else ''}"),
                    _cell(op.op),
                    _number(line.calls),
                    _number(line.bytes, max(line.bytes for _, line in lines)),
                ],
            }
            for op, line in sorted(lines, key=lambda pair: -pair[1].bytes)
        ],
    )


def _headings(*titles: str) -> list[dict[str, Any]]:
    return [{"title": title, "number": title in ("calls", "bytes")} for title in titles]


def _cell(text: str) -> dict[str, Any]:
    return {"text": text, "value": None, "bar": None}


def _number(value: int, most: int = 0) -> dict[str, Any]:
    """Write a number; with what is most of its column, its share of that as a bar."""
    return {"text": f"{value:,}", "value": value, "bar": value / most if most else None}


AUDIT = Command(
    name="audit",
    summary="list a program's ops, who decides them, what they move",
    details="Run a program as rank 0 of many, with tensors that have no memory and ranks that are\n"
    "not there, and list every op on DTensors: how often it runs, who decides its placements,\n"
    "what it redistributes, and the line it comes from. Ops that nobody has a rule for come\n"
    "first; they do not end the program. Exit code 1: there is such an op, or the program failed.",
    example="dtensor-registry audit train.py --mesh 2x4",
    configure=_configure,
    run=_run,
    takes_rest=True,
)
