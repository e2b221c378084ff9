"""How commands write: tables and JSON to stdout, everything about them to stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dtensor_registry.discovery import PluginWarning

UNLIMITED = 100_000
"""Columns of what is no terminal: a line that is piped is never cut or folded."""


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str] | None = None
) -> None:
    """Print a table; a terminal folds cells that are too wide, other files get them whole.

    Args:
        columns: the headings.
        rows: cells as text, as many as there are columns.
        styles: rich's style for a cell that is exactly this text.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for number, column in enumerate(columns):
        # The first column is what a row is about: it keeps its line, others fold around it.
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in row))
    _console().print(table)


def print_lines(*lines: str) -> None:
    """Print text as it is."""
    _console().print("\n".join(lines))


def print_json(report: object) -> None:
    """Print a report as JSON, without the fields of pydantic's models that nobody set."""
    text = TypeAdapter(type(report)).dump_json(report, indent=2, exclude_unset=True).decode()
    _console().out(text, highlight=False)


def print_error(text: object) -> None:
    """Say on stderr what went wrong."""
    print(f"error: {text}", file=sys.stderr)


def print_warnings(notes: Sequence[str]) -> None:
    """Say on stderr what the user should know."""
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)


@contextmanager
def without_plugin_warnings() -> Iterator[None]:
    """Keep Python from warning of what the command prints itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        yield


def _console() -> Console:
    # Made anew each time, since it binds the stdout of that moment. No markup: what plugins
    # call themselves and `Tensor[]` in their reasons must come out as they are.
    return Console(
        width=None if sys.stdout.isatty() else UNLIMITED,
        markup=False,
        emoji=False,
        highlight=False,
    )
