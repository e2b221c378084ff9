"""`dtensor-registry doctor`: is everything as it should be, and what to do where it is not."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import print_json, print_lines
from dtensor_registry.diagnosis import doctor
from dtensor_registry.diagnosis.findings import Check, State
from dtensor_registry.settings import read_settings


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What `doctor --json` prints.

    Attributes:
        state: how the worst check is.
        checks: in the order in which one rests on the other.
    """

    state: State
    checks: tuple[Check, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--corrections",
        action="store_true",
        help="run the counterexamples of corrections, and list those that torch has right",
    )


def _run(arguments: argparse.Namespace) -> int:
    checkup = doctor(read_settings(), corrections=arguments.corrections)
    if arguments.json:
        print_json(DoctorReport(checkup.state, checkup.checks))
    else:
        print_lines(str(checkup))
    return PROBLEM if checkup.state == "fail" else FINE


DOCTOR = Command(
    name="doctor",
    summary="check torch, plugins, settings and caches, and say what to do",
    details="Check what sharding rests on: torch's version and the private names that are used of\n"
    "it, plugins, names in settings, conflicts, rules that other code wrote to torch's tables,\n"
    "autoload, the tag of torch's compile caches. Each line is ok, warn or fail, with the next\n"
    "step. Plugins are loaded; nothing is put in force. In a program: dtensor_registry.doctor()",
    example="dtensor-registry doctor",
    configure=_configure,
    run=_run,
)
