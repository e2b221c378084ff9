"""`dtensor-registry lock [FILE]`: write down who rules each op, by what, in one line each."""

from __future__ import annotations

import argparse
from pathlib import Path

from dtensor_registry.cli.command import FINE, Command
from dtensor_registry.cli.output import print_lines, without_plugin_warnings
from dtensor_registry.cli.output_file import check_destination, write_destination
from dtensor_registry.errors import SettingsError
from dtensor_registry.lock import is_lock, write_lock
from dtensor_registry.settings import read_settings


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="where to; default: to the screen"
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()
    if arguments.file is not None:
        _check(arguments.file)
    # Here, since importing it imports torch, which `plugins` and `--help` must not.
    from dtensor_registry.lock.capture import current_lock

    with without_plugin_warnings():
        lock = current_lock(settings)
    text = write_lock(lock)
    if arguments.file is not None:
        write_destination(arguments.file, text.encode())
    if arguments.json or arguments.file is None:
        print_lines(text.rstrip("\n"))
    else:
        print_lines(f"{arguments.file}: {len(lock.ops)} ops")
    return FINE


def _check(file: Path) -> None:
    """Refuse a file that cannot be written, or that holds something else than a lock.

    Raises:
        SettingsError: for such a file.
    """
    check_destination(file)
    if not file.is_file() or is_lock(file.read_bytes()):
        return
    raise SettingsError(
        f"{file}: it is there and is no lock file, so it was left as it is\n"
        f"  Name another file, or take it away first:  mv {file} {file}.old"
    )


LOCK = Command(
    name="lock",
    summary="write down who rules each op, by which rule",
    details="Write down the resolved rules as JSON, one op a line: who rules it, which version,\n"
    "by what, and which rows it answers for square tensors. The text is the same for the same\n"
    "packages and settings. With setting 'lock' set to the file, install() fails when they differ.",
    example="dtensor-registry lock rules.lock",
    configure=_configure,
    run=_run,
)
