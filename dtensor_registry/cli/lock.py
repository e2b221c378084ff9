"""`dtensor-registry lock [FILE]`: write down who rules each op, by what, in one line each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from dtensor_registry.cli.command import FINE, Command
from dtensor_registry.cli.destination import check_destination, write_destination
from dtensor_registry.cli.screen import print_json, print_lines, without_plugin_warnings
from dtensor_registry.errors import SettingsError
from dtensor_registry.lock import is_lock, write_lock
from dtensor_registry.settings import read_settings

if TYPE_CHECKING:
    from dtensor_registry.lock import Lock


class LockedOpRow(BaseModel):
    """Who rules one op, by what, as `LockedOp` has it."""

    model_config = ConfigDict(frozen=True)

    op: str
    plugin: str
    distribution: str
    in_torch: bool
    rule: str
    rows: tuple[str, ...]


class LockReport(BaseModel):
    """What `lock --json` prints.

    Attributes:
        ground: versions, settings that count, plugins and fallbacks, by name.
        ops: sorted by op.
    """

    model_config = ConfigDict(frozen=True)

    ground: dict[str, str]
    ops: tuple[LockedOpRow, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="where to; default: to the screen"
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()
    if arguments.file is not None:
        _check(arguments.file)
    # Here, since importing it imports torch, which `plugins` and `--help` must not.
    from dtensor_registry.installation.locking import current_lock

    with without_plugin_warnings():
        lock = current_lock(settings)
    if arguments.file is not None:
        write_destination(arguments.file, write_lock(lock).encode())
    if arguments.json:
        print_json(_report(lock))
    elif arguments.file is None:
        print_lines(write_lock(lock).rstrip("\n"))
    else:
        print_lines(f"{arguments.file}: {len(lock.ops)} ops")
    return FINE


def _report(lock: Lock) -> LockReport:
    return LockReport(
        ground=dict(lock.ground),
        ops=tuple(
            LockedOpRow(
                op=op.op,
                plugin=op.plugin,
                distribution=op.distribution,
                in_torch=op.in_torch,
                rule=op.rule,
                rows=op.rows,
            )
            for op in lock.ops
        ),
    )


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
    details="Write down the resolved rules as text, one op a line: who rules it, which version,\n"
    "by what, and which rows it answers for square tensors. The text is the same for the same\n"
    "packages and settings. With setting 'lock' set to the file, install() fails when they differ.",
    example="dtensor-registry lock rules.lock",
    configure=_configure,
    run=_run,
)
