"""`dtensor-registry explain OP INPUTS... --mesh 2x4`: why a call is sharded as it is."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from dtensor_registry.cli.command import FINE, PROBLEM, USAGE, Command
from dtensor_registry.cli.output import (
    print_error,
    print_json,
    print_lines,
    without_plugin_warnings,
)
from dtensor_registry.cli.output_file import check_destination
from dtensor_registry.errors import AskedError, NotationError, SettingsError
from dtensor_registry.explanation import Explanation, ExplanationReport, parse_argument
from dtensor_registry.settings import read_settings


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", metavar="OP", help="an op: 'aten.mm.default', 'aten.mm', 'acme::f'")
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="*",
        help="its arguments: a tensor 'f32[4096,1024]@S(0),R', a list of them '[f32[8]@R, None]',"
        " a Python literal; by position or 'name=value'. None: only who has rules is told",
    )
    parser.add_argument("--mesh", metavar="MESH", help="the mesh: '2x4' or 'dp=2,tp=4'")
    parser.add_argument(
        "--why-not",
        metavar="CHOICE",
        action="append",
        default=[],
        help="ask about a choice: 'S(1),R -> S(0),R', inputs, then outputs, tensors apart by ';'",
    )
    parser.add_argument(
        "--all", action="store_true", help="list every choice, not just the first ten"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page as well")
    parser.add_argument(
        "--import",
        metavar="MODULE",
        dest="modules",
        action="append",
        default=[],
        help="import a module first, that defines ops or registers rules",
    )


def _run(arguments: argparse.Namespace) -> int:
    read_settings()  # a wrong setting is told before anything slow
    if arguments.html is not None:
        check_destination(arguments.html, "--html")
    try:
        with without_plugin_warnings():
            explanation = _explain(arguments)
    except (AskedError, NotationError) as error:
        print_error(error)
        return USAGE
    if arguments.html is not None:
        from dtensor_registry.explanation.page import explanation_page
        from dtensor_registry.pages import write_page

        write_page(arguments.html, explanation_page(explanation))
    if arguments.json:
        print_json(ExplanationReport(explanation))
    else:
        print_lines(str(explanation))
    return FINE if explanation.error is None else PROBLEM


def _explain(arguments: argparse.Namespace) -> Explanation:
    # Here, since importing them imports torch, which `--help` must not.
    from dtensor_registry.explanation.describe import Wanted
    from dtensor_registry.explanation.explain import explain_arguments

    given = [parse_argument(text) for text in arguments.inputs]
    for module in arguments.modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # it is the user's, and may fail as it likes
            raise SettingsError(f"--import {module}: {type(error).__name__}: {error}") from error
    return explain_arguments(
        arguments.op,
        [value for name, value in given if name is None],
        {name: value for name, value in given if name is not None},
        arguments.mesh,
        Wanted(None if arguments.all else 10, tuple(arguments.why_not)),
    )


EXPLAIN = Command(
    name="explain",
    summary="say why a call is sharded as it is",
    details="Say why a call is sharded as it is: who has rules for the op and who wins, what is\n"
    "chosen and what each choice costs, what is moved how, what comes out. The call is dispatched\n"
    "as DTensor does it, on tensors without data: no GPU and no other process are needed.\n"
    "Exit code 1: the call raises.",
    example="dtensor-registry explain aten.mm 'f32[4096,1024]@S(0),R' 'f32[1024,2048]@R,S(1)'"
    " --mesh dp=2,tp=4",
    configure=_configure,
    run=_run,
)
