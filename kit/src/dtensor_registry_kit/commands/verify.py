"""`dtensor-registry verify [WHAT ...]`: hold rules against what their ops really compute."""

from __future__ import annotations

import argparse
import os
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import (
    print_json,
    print_lines,
    print_table,
    print_warnings,
    without_plugin_warnings,
)
from dtensor_registry.cli.output_file import check_destination, write_destination
from dtensor_registry.settings import read_settings
from dtensor_registry_kit.judging.findings import NO_ROWS

if TYPE_CHECKING:
    from dtensor_registry_kit.verification.verify import Verified

STYLES = {
    "trusted": "green",
    "WRONG": "red",
    "check failed": "red",
    "not checked": "yellow",
    "not reached": "yellow",
}
"""Colours of the outcomes."""

NOT_REACHED = "not reached"
OPINFO = "torch's sample inputs"
"""How a note begins that says that OpInfo cannot be used."""
PROBLEMS = ("WRONG", "check failed")
"""Outcomes that make the command exit with 1."""


class FindingRow(BaseModel):
    """One thing that was found, as `--json` prints it."""

    model_config = ConfigDict(frozen=True)

    kind: str
    is_error: bool
    about: str
    evidence: str
    sample: str
    program: str
    times: int
    saves: float


class RuleRow(BaseModel):
    """The outcome for one rule and one op.

    Attributes:
        state: a key of `STYLES`.
        sound: the rows that ground truth proved.
        samples: who made the sample calls: `author`, `OpInfo` or `generated`.
        combinations: how many times a row was judged.
        seconds: how long it took.
    """

    model_config = ConfigDict(frozen=True)

    op: str
    plugin: str
    owner: str
    rule: str
    state: str
    sound: tuple[str, ...]
    findings: tuple[FindingRow, ...]
    samples: str
    note: str
    combinations: int
    seconds: float


class VerifyReport(BaseModel):
    """What `verify --json` prints."""

    model_config = ConfigDict(frozen=True)

    torch: str
    rules: tuple[RuleRow, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        nargs="*",
        help="a plugin, a glob of ops ('aten.mm', 'acme.*'), 'plugin:op-glob', or 'torch' for"
        " torch's own rules; default: all rules of all plugins",
    )
    parser.add_argument(
        "--samples", metavar="N", type=_positive, default=6, help="calls of each op (default 6)"
    )
    parser.add_argument(
        "--budget", metavar="S", type=_seconds, help="begin with no further op after S seconds"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=_positive, default=_cores(), help="processes (default: cores)"
    )
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the outcome as JUnit XML")
    parser.add_argument(
        "--missing", action="store_true", help="list the rows that rules could offer and do not"
    )


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:  # nor is nan
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(arguments: argparse.Namespace) -> int:
    if arguments.junit is not None:
        check_destination(arguments.junit, "--junit")
    # Here, since importing it imports torch, which `plugins` and `--help` must not.
    import torch

    from dtensor_registry_kit.verification.verify import Options, verify

    with without_plugin_warnings():
        targets, outcomes = verify(
            read_settings(),
            arguments.what,
            Options(samples=arguments.samples),
            processes=arguments.jobs,
            seconds=arguments.budget,
        )
    rows = {
        target.key: RuleRow(
            op=target.name,
            plugin=target.plugin,
            owner=target.owner,
            rule="",
            state=NOT_REACHED,
            sound=(),
            findings=(),
            samples="",
            note="",
            combinations=0,
            seconds=0.0,
        )
        for target in targets
    }
    with _progress(len(targets)) as advance:
        for verified in outcomes:
            rows[verified.plugin, verified.op] = _row(verified)
            advance(verified.op)
    report = VerifyReport(torch=torch.__version__, rules=tuple(rows.values()))
    if arguments.junit is not None:
        write_destination(arguments.junit, junit(report), "--junit")
    if arguments.json:
        print_json(report)
    else:
        _print(report, with_missing=arguments.missing)
    print_warnings(list(_notes(report)))
    states = {row.state for row in report.rules}
    # Rules of which not one was reached are as good as not verified.
    return PROBLEM if states & {*PROBLEMS} or states == {NOT_REACHED} else FINE


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Show how far it is on a terminal; the table goes to stdout, this to stderr."""
    columns = (
        TextColumn("verifying"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[op]}", markup=False),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("verifying", total=total, op="")
        yield lambda op: bar.update(task, advance=1, op=op)


def _row(verified: Verified) -> RuleRow:
    report = verified.report
    return RuleRow(
        op=verified.op,
        plugin=verified.plugin,
        owner=report.owner,
        rule=report.rule,
        state=verified.state,
        sound=report.sound,
        findings=tuple(
            FindingRow(
                kind=f.kind,
                is_error=f.is_error,
                about=f.about,
                evidence=f.evidence,
                sample=f.sample,
                program=f.program,
                times=f.times,
                saves=f.saves,
            )
            for f in report.findings
        ),
        samples=verified.source,
        note=verified.note,
        combinations=report.combinations,
        seconds=round(verified.seconds, 3),
    )


def _print(report: VerifyReport, with_missing: bool) -> None:
    if not report.rules:
        print_lines("no plugin has a rule for any op")
        return
    columns = ["op", "plugin", "result", "rows proven", "tried", "samples", "found", "seconds"]
    print_table(columns, [_cells(row) for row in report.rules], STYLES)
    for row in report.rules:
        errors = [finding for finding in row.findings if finding.is_error]
        if errors:
            print_lines("", f"{row.op}: the rule {row.rule} of {row.owner} is wrong")
        for finding in errors:
            print_lines(*_lines(finding))
    for row in report.rules if with_missing else ():
        missing = [finding for finding in row.findings if finding.kind == "missing"]
        if missing:
            print_lines("", f"{row.op}: rows that the rule could offer, best first")
        for finding in missing:
            print_lines(f"  {finding.about}  ({finding.saves:.0f} us)  for {finding.sample}")
    counts = Counter(row.state for row in report.rules)
    message = ", ".join(f"{counts[state]} {state}" for state in STYLES if counts[state])
    combinations = sum(row.combinations for row in report.rules)
    print_lines("", f"{len(report.rules)} rules: {message} ({combinations} combinations)")


def _cells(row: RuleRow) -> list[str]:
    kinds = Counter(finding.kind for finding in row.findings)
    found = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return [
        row.op,
        row.plugin,
        row.state,
        str(len(row.sound)),
        str(row.combinations),
        row.samples,
        found,
        f"{row.seconds:.1f}",
    ]


def _lines(finding: FindingRow) -> list[str]:
    lines = [f"  {finding.kind}: {finding.about}".rstrip(": ")]
    lines += [f"    call  {finding.sample}"] if finding.sample else []
    lines.append(f"    seen  {finding.evidence}")
    if finding.program:
        lines.append("    To see it again:")
        lines += [f"        {line}" for line in finding.program.splitlines()]
    return lines


def _notes(report: VerifyReport) -> Iterator[str]:
    """Say of what the table does not speak: what was not checked, or only poorly."""
    for state in ("check failed", "not checked", NOT_REACHED):
        named = [row for row in report.rules if row.state == state]
        if named:
            shown = ", ".join(row.op for row in named[:5]) + (", ..." if len(named) > 5 else "")
            note = named[0].note
            why = f": {note}" if note and not note.startswith(OPINFO) else ""
            yield f"{len(named)} rules were {state} ({shown}){why}"
    generated = [row for row in report.rules if row.samples == "generated"]
    if generated:
        yield (
            f"{len(generated)} rules were checked with samples generated from the schema, which may"
            " be calls that the op is not meant for; authors give theirs with samples="
        )
    yield from _whole_calls(report)
    # One for all rules: what is missing is missing for all, and the note says what to type.
    yield from [row.note for row in report.rules if row.note.startswith(OPINFO)][:1]


def _whole_calls(report: VerifyReport) -> Iterator[str]:
    """Say which rules were judged by calls on DTensors alone, and what they leave to torch."""
    named = [row for row in report.rules if row.note.startswith(NO_ROWS)]
    if named:
        shown = ", ".join(row.op for row in named[:5]) + (", ..." if len(named) > 5 else "")
        yield f"of {len(named)} rules {NO_ROWS} ({shown})"
    for row in named:
        _, _, of_torch = row.note.partition("; ")
        if of_torch:
            yield f"{row.op}: {of_torch}"


def junit(report: VerifyReport) -> bytes:
    """Write a report as JUnit XML: a suite per plugin, a case per op."""
    root = ElementTree.Element("testsuites", name="dtensor-registry verify")
    for plugin in dict.fromkeys(row.plugin for row in report.rules):
        rows = [row for row in report.rules if row.plugin == plugin]
        _suite(root, plugin, rows)
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written


def _suite(root: ElementTree.Element, plugin: str, rows: Sequence[RuleRow]) -> None:
    states = Counter(row.state for row in rows)
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=plugin,
        tests=str(len(rows)),
        failures=str(states["WRONG"]),
        errors=str(states["check failed"]),
        skipped=str(states["not checked"] + states[NOT_REACHED]),
        time=f"{sum(row.seconds for row in rows):.3f}",
    )
    for row in rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname=plugin, name=row.op, time=f"{row.seconds:.3f}"
        )
        errors = [finding for finding in row.findings if finding.is_error]
        if errors:
            failure = ElementTree.SubElement(
                case, "failure", message=f"{errors[0].kind}: {errors[0].about}", type=errors[0].kind
            )
            failure.text = "\n".join(line for finding in errors for line in _lines(finding))
        elif row.state == "check failed":
            ElementTree.SubElement(case, "error", message=row.note)
        elif row.state in ("not checked", NOT_REACHED):
            ElementTree.SubElement(case, "skipped", message=row.note or row.state)


VERIFY = Command(
    name="verify",
    summary="check rules against what their ops really compute",
    details="Check rules against ground truth: each row of a rule by running the op on pieces of\n"
    "whole tensors, forward and backward, and what DTensor makes of it on simulated meshes.\n"
    "Finds rows that are wrong, arguments missing from the cache key, rows that could be added.\n"
    "Exit code 1: a rule is wrong, or --budget was over before any was reached. Every failing row\n"
    "comes with a program that shows it again.",
    example="dtensor-registry verify matrix 'acme.*' --samples 10 --junit verify.xml",
    configure=_configure,
    run=_run,
)
