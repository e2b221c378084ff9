"""The program: one parser for all commands, errors to stderr, exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

import importlib_metadata

from dtensor_registry.cli.audit import AUDIT
from dtensor_registry.cli.command import PROBLEM, USAGE, Command
from dtensor_registry.cli.completion import add_completion
from dtensor_registry.cli.diff import DIFF
from dtensor_registry.cli.doctor import DOCTOR
from dtensor_registry.cli.explain import EXPLAIN
from dtensor_registry.cli.lock import LOCK
from dtensor_registry.cli.new import NEW
from dtensor_registry.cli.ops import OPS
from dtensor_registry.cli.plugins import PLUGINS
from dtensor_registry.cli.screen import print_error
from dtensor_registry.cli.verify import VERIFY
from dtensor_registry.errors import RegistryError, SettingsError

NAME = "dtensor-registry"
COMMANDS: tuple[Command, ...] = (
    AUDIT,
    DIFF,
    DOCTOR,
    EXPLAIN,
    LOCK,
    NEW,
    OPS,
    PLUGINS,
    VERIFY,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: what follows the program's name; None: as the user typed it.

    Returns:
        The exit code: 0 fine, 1 a problem was found, 2 the command line or a setting is wrong.

    Raises:
        SystemExit: from argparse, after help (0) or a wrong command line (2).
    """
    arguments = parse(sys.argv[1:] if argv is None else argv)
    command: Command = arguments.command
    try:
        return command.run(arguments)
    except SettingsError as error:
        print_error(error)
        return USAGE
    except RegistryError as error:
        print_error(error)
        return PROBLEM


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line; what follows `--` is kept as it is, for commands that pass it on.

    Raises:
        SystemExit: from argparse, after help (0) or a wrong command line (2).

    >>> parse(["audit", "train.py", "--mesh", "2x4", "--", "--steps", "1"]).rest
    ['--steps', '1']
    """
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    parser = build_parser()
    arguments = parser.parse_args(words[:end])
    arguments.rest = words[end + 1 :]
    if arguments.rest and not arguments.command.takes_rest:
        parser.error(f"unrecognized arguments: {' '.join(arguments.rest)}")
    return arguments


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line.

    >>> build_parser().parse_args(["plugins", "--json"]).json
    True
    """
    examples = "\n".join(f"  {command.example}" for command in COMMANDS)
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
    add_completion(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        part = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.details,
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        part.add_argument("--json", action="store_true", help="print JSON instead of a table")
        command.configure(part)
        part.set_defaults(command=command)
    return parser


def _version() -> str:
    try:
        return importlib_metadata.version(NAME)
    except importlib_metadata.PackageNotFoundError:
        return "(a source tree that is not installed)"
