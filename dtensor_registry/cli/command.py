"""What a command is: the program takes all it knows of one from here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

FINE = 0
PROBLEM = 1
"""Something that the command looked at is wrong: a broken plugin, a conflict, no such op."""
USAGE = 2
"""The command line or a setting is wrong; argparse exits with the same number."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the program.

    Attributes:
        name: what the user types.
        summary: one line for the list of commands.
        details: what the user should know beyond that, for the command's own help.
        example: a command line that is worth trying.
        configure: adds the command's arguments to its parser; `--json` is there already.
        run: does the work and returns the exit code; a `RegistryError` is left to the program.
        takes_rest: whether what follows `--` is for the command, as `arguments.rest`.
    """

    name: str
    summary: str
    details: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    takes_rest: bool = False
