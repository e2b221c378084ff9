"""`dtensor-registry audit PROGRAM`: which ops a program runs, who decides them, what it costs."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import (
    print_json,
    print_lines,
    print_table,
    print_warnings,
    without_plugin_warnings,
)
from dtensor_registry.cli.output_file import check_destination
from dtensor_registry.errors import NotationError, SettingsError
from dtensor_registry.mesh_sizes import MeshSizes, parse_mesh
from dtensor_registry.pages import write_page
from dtensor_registry.settings import read_settings

if TYPE_CHECKING:
    from dtensor_registry.auditing import AuditReport, ProgramAudit

STYLES = {"nobody": "red"}
"""Colours of deciders."""


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
    from dtensor_registry.auditing import AuditReport, audit_program
    from dtensor_registry.auditing.page import audit_page
    from dtensor_registry.installation import install

    with without_plugin_warnings(), install(settings) if arguments.install else nullcontext():
        audited = audit_program(arguments.program, arguments.rest, arguments.mesh.ranks)
    report = AuditReport.of(arguments.program, arguments.mesh, audited)
    if arguments.html is not None:
        write_page(arguments.html, audit_page(report))
    if arguments.json:
        print_json(report)
    else:
        _print(report, audited)
    print_warnings(list(report.notes()))
    return PROBLEM if report.lacking or report.stopped else FINE


def _print(report: AuditReport, audited: ProgramAudit) -> None:
    from dtensor_registry.auditing.rows import COLUMNS, write_sum

    print_lines(report.title, "")
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
