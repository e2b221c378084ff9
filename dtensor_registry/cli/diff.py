"""`dtensor-registry diff A [B]`: what differs between two locks, or between one and now."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import print_json, print_lines, without_plugin_warnings
from dtensor_registry.lock import Difference, differences, read_lock
from dtensor_registry.settings import read_settings

NOW = "now"


@dataclass(frozen=True, slots=True)
class DiffReport:
    """What `diff --json` prints.

    Attributes:
        before: file A.
        after: file B, or `now`.
        differences: versions and settings first, then op by op.
    """

    before: str
    after: str
    differences: tuple[Difference, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", type=Path, help="a lock file")
    parser.add_argument(
        "after", metavar="B", type=Path, nargs="?", help="another; default: what is there now"
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()
    # Here, since importing it imports torch, which `plugins` and `--help` must not.
    from dtensor_registry.lock.capture import current_lock

    before = read_lock(arguments.before)
    with without_plugin_warnings():
        after = current_lock(settings) if arguments.after is None else read_lock(arguments.after)
    found = differences(before, after)
    later = NOW if arguments.after is None else str(arguments.after)
    report = DiffReport(str(arguments.before), later, found)
    if arguments.json:
        print_json(report)
    else:
        told = f"{len(found) or 'no'} difference{'s' if len(found) > 1 else ''}"
        print_lines(*map(str, found), f"{report.before} -> {report.after}: {told}")
    return PROBLEM if found else FINE


DIFF = Command(
    name="diff",
    summary="say what differs between two lock files, or one and now",
    details="Say what differs between two files that `dtensor-registry lock` wrote, or between\n"
    "one and what is installed now: rows gained and lost, owners changed, ops that torch now has\n"
    "a rule of its own for. Exit code 1: they differ.",
    example="dtensor-registry diff rules.lock",
    configure=_configure,
    run=_run,
)
