"""`dtensor-registry derive OP FILE:FUNCTION`: the rule of an op, from plain PyTorch."""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import print_json, print_lines, without_plugin_warnings
from dtensor_registry.errors import SettingsError
from dtensor_registry.settings import nearest, read_settings

CALLS = 6
"""Calls that are made from the schema where the user gives none."""


class RefutedRow(BaseModel):
    """A row that the reference would allow, and why it is not in the rule."""

    model_config = ConfigDict(frozen=True)

    row: str
    evidence: str


class DeriveReport(BaseModel):
    """What `derive --json` prints.

    Attributes:
        op: what the rule is for.
        passed: the ops that the reference passes through.
        rule: its source, to paste into a plugin.
        rows: how many it has, over all cases.
        refuted: rows that are left out.
    """

    model_config = ConfigDict(frozen=True)

    op: str
    passed: tuple[str, ...]
    rule: str
    rows: int
    refuted: tuple[RefutedRow, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A function in a file, as the user names it.

    Attributes:
        file: a Python file, which is run as a module.
        function: defined in it.
    """

    file: Path
    function: str


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", metavar="OP", help="the op: acme.rms_norm, or with its overload")
    parser.add_argument(
        "reference",
        metavar="FILE:FUNCTION",
        type=_place,
        help="plain PyTorch that takes the same arguments and computes the same; the file is run,"
        " so it can import what defines the op",
    )
    parser.add_argument(
        "--samples",
        metavar="FILE:FUNCTION",
        type=_place,
        help="what yields calls (args, kwargs) of the op; default: calls made from its schema",
    )
    parser.add_argument(
        "--ignore",
        metavar="NAME",
        action="append",
        default=[],
        help="an argument that no row depends on, such as an epsilon; may be repeated",
    )
    parser.add_argument(
        "--partial",
        metavar="REDUCTION",
        action="append",
        help="a reduction to look for in inputs: sum, max, ...; may be repeated (default: sum)",
    )


def _place(text: str) -> Place:
    file, found, function = text.rpartition(":")
    if not found or not function.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not written FILE:FUNCTION")
    return Place(Path(file), function)


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()
    reference = _function(arguments.reference)
    samples = None if arguments.samples is None else _function(arguments.samples)
    # Here, since importing them imports torch, which `plugins` and `--help` must not.
    from dtensor_registry.installation import install
    from dtensor_registry_kit.derivation.derive import derive, op_to_derive
    from dtensor_registry_kit.samples.choose import samples_for

    calls = samples_for(op_to_derive(arguments.op), samples, CALLS).calls
    with without_plugin_warnings(), install(settings):
        found = derive(
            arguments.op,
            calls,
            reference,
            ignore=arguments.ignore,
            partials=arguments.partial or ("sum",),
        )
    report = DeriveReport(
        op=found.op,
        passed=found.passed,
        rule=str(found.rule),
        rows=sum(len(case.rows) for case in found.rule.cases),
        refuted=tuple(RefutedRow(row=str(row), evidence=why) for row, why in found.refuted),
    )
    if arguments.json:
        print_json(report)
    else:
        print_lines(str(found))
    return FINE if report.rows else PROBLEM


def _function(place: Place) -> Callable[..., Any]:
    """Run a file and take a function of it.

    Raises:
        SettingsError: if there is no such file, or no such function in it.
    """
    if not place.file.is_file():
        raise SettingsError(f"{place.file}: there is no such file")
    names = _names(place.file.resolve())
    function = names.get(place.function)
    if not callable(function):
        known = [name for name, value in names.items() if callable(value)]
        raise SettingsError(
            f"{place.file} has no function {place.function!r}; {nearest(place.function, known)}"
        )
    made: Callable[..., Any] = function
    return made


@cache
def _names(file: Path) -> dict[str, Any]:
    """Run a file, once: reference and samples may be in one."""
    return runpy.run_path(str(file))


DERIVE = Command(
    name="derive",
    summary="find the rule of a fused op from plain PyTorch",
    details="Find the rule of a fused op from plain PyTorch that computes the same: placements\n"
    "are followed through it by the rules that are in force, what is found is held against the\n"
    "op itself, and the rule is printed for you to read and to paste into a plugin. Exit code 1:\n"
    "no row was found.",
    example="dtensor-registry derive acme.rms_norm reference.py:rms_norm --ignore eps",
    configure=_configure,
    run=_run,
)
