"""`dtensor-registry --print-completion SHELL`: what a shell needs to complete the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dtensor_registry.cli.command import PROBLEM
from dtensor_registry.cli.output import print_error
from dtensor_registry.errors import MissingPackageError

OPTION = "--print-completion"
SHELLS = ("bash", "fish", "tcsh", "zsh")


class PrintCompletion(argparse.Action):
    """Prints the script of one shell and ends the program, as `--help` and `--version` do."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Print and exit: 0, or 1 if the package that writes such scripts is not installed."""
        try:
            import shtab
        except ImportError:
            print_error(MissingPackageError("shtab", "completion", f"{OPTION} {values}"))
            parser.exit(PROBLEM)
        for action in _arguments(parser):
            if action.metavar == "DIR":
                vars(action)["complete"] = shtab.DIRECTORY
            elif action.type is Path or action.metavar == "PROGRAM":
                vars(action)["complete"] = shtab.FILE
        print(shtab.complete(parser, shell=str(values)))
        parser.exit()


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of the program and of all its commands, which argparse does not list."""
    for action in vars(parser)["_actions"]:
        yield action
        for command in (action.choices or {}).values() if action.nargs == argparse.PARSER else ():
            yield from _arguments(command)


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the option to the parser of the whole program."""
    parser.add_argument(
        OPTION,
        metavar="SHELL",
        choices=SHELLS,
        action=PrintCompletion,
        help=f"print the completion script of a shell: {', '.join(SHELLS)}",
    )
