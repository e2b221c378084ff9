"""The program: one parser for all commands, errors to stderr, exit codes."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import importlib_metadata

from dtensor_registry.cli.command import PROBLEM, USAGE, Command
from dtensor_registry.cli.commands import Commands, find_commands
from dtensor_registry.cli.completion import add_completion
from dtensor_registry.cli.output import print_error, print_warnings
from dtensor_registry.errors import RegistryError, SettingsError, UnavailableCommandError
from dtensor_registry.rules.strategy import SourceLine

NAME = "dtensor-registry"
INTERRUPTED = 130
"""What a shell gives a command that Ctrl-C ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: what follows the program's name; None: as the user typed it.

    Returns:
        The exit code: 0 fine, 1 a problem was found, 2 the command line or a setting is wrong,
        130 Ctrl-C.

    Raises:
        SystemExit: from argparse, after help (0) or a wrong command line (2).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(words)
    except UnavailableCommandError as error:
        print_error(error)
        return PROBLEM
    command: Command = arguments.command
    with _interrupts() as came:
        try:
            return command.run(arguments)
        except KeyboardInterrupt:
            pass
        except Exception as error:
            # An import that Ctrl-C cuts short may make another error of it, as numpy's does.
            if not came:
                if arguments.traceback and not isinstance(error, RegistryError):
                    raise
                return _tell(error, words)
    print_error("interrupted")
    return INTERRUPTED


def _tell(error: Exception, words: Sequence[str]) -> int:
    """Print an error; what comes back is the exit code."""
    print_error(error if isinstance(error, RegistryError) else _unexpected(error, words))
    return USAGE if isinstance(error, SettingsError) else PROBLEM


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Keep a list of the Ctrl-C that came in the block; each raises as it does without."""
    came: list[int] = []
    raising = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    if raising is not signal.default_int_handler or current_thread() is not main_thread():
        yield came  # somebody else's to handle
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, raising)


def _unexpected(error: Exception, words: Sequence[str]) -> str:
    """Say what nobody has foreseen, where it was raised, and how to see the way there."""
    told = str(error).strip().partition("\n")[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = SourceLine(last.filename, last.lineno or 0)
    return (
        f"this is a fault of dtensor-registry, or of a plugin or program that it ran:"
        f" {type(error).__name__}: {told} ({where})\n"
        f"  See where it comes from:  {shlex.join([NAME, '--traceback', *words])}"
    )


class CommandParser(argparse.ArgumentParser):
    """The parser of one command: options and other arguments in any order, its own usage."""

    _is_at_work = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Read the command's words; the parser of the program calls this.

        Raises:
            SystemExit: for words that the command does not know.
        """
        if self._is_at_work:  # some versions of Python come here from the call below
            return super().parse_known_args(args, namespace)
        self._is_at_work = True
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_at_work = False
        if unknown:
            self.refuse(unknown, found.command)
        return found, []

    def refuse(self, unknown: Sequence[str], command: Command) -> None:
        """End the program for words that a command does not know."""
        told = f"unrecognized arguments: {' '.join(unknown)}"
        if command.takes_rest:
            told += "\n  What is the program's own goes after -- :  ... -- " + shlex.join(unknown)
        self.error(told)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line; what follows `--` is kept as it is, for commands that pass it on.

    Raises:
        SystemExit: from argparse, after help (0) or a wrong command line (2).
        UnavailableCommandError: if the command cannot be run.

    >>> parse(["audit", "train.py", "--mesh", "2x4", "--", "--steps", "1"]).rest
    ['--steps', '1']
    """
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    commands = find_commands(words[:end])
    print_warnings(commands.refused)
    parser = build_parser(commands)
    arguments = parser.parse_args(words[:end])
    arguments.rest = words[end + 1 :]
    if arguments.rest and not arguments.command.takes_rest:
        arguments.parser.refuse(arguments.rest, arguments.command)
    return arguments


def build_parser(found: Commands) -> argparse.ArgumentParser:
    """Build the parser of the whole command line.

    >>> build_parser(find_commands(["plugins"])).parse_args(["plugins", "--json"]).json
    True
    """
    examples = "\n".join(f"  {command.example}" for command in found.usable)
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="DTensor's sharding strategies from installed plugins: who is there, who wins.",
        epilog=f"examples:\n{examples}\n\n"
        "Settings come from the environment (DTENSOR_REGISTRY_...), dtensor_registry.toml and\n"
        "[tool.dtensor_registry] in pyproject.toml, both of the working directory.\n"
        "Exit codes: 0 fine; 1 a problem was found; 2 the command line or a setting is wrong.",
        # Beside the names of commands, which are short; the one long option has its help below.
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=14),
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {_version()}")
    parser.add_argument(
        "--traceback", action="store_true", help="show where an unforeseen error comes from"
    )
    add_completion(parser)
    commands: Any = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for command in found.usable:
        part = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.details,
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        part.add_argument("--json", action="store_true", help="print JSON instead of a table")
        command.configure(part)
        part.set_defaults(command=command, parser=part)
    for name, error in sorted(found.unavailable.items()):
        commands.add_parser(name, help=f"(unavailable: {error.reason})")
    return parser


def _version() -> str:
    try:
        return importlib_metadata.version(NAME)
    except importlib_metadata.PackageNotFoundError:
        return "(a source tree that is not installed)"
