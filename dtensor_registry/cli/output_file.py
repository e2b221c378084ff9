"""Files that commands write: what is wrong with one is said before the work is done."""

from __future__ import annotations

import os
from pathlib import Path

from dtensor_registry.errors import SettingsError


def check_destination(file: Path, option: str = "") -> None:
    """Make sure, as far as that can be known, that a file can be written; nothing is touched.

    Args:
        file: where to.
        option: what the user gave the file with, for the message.

    Raises:
        SettingsError: if it cannot.

    >>> check_destination(Path("report.xml"))
    """
    if file.is_dir():
        raise _unwritable(file, option, "it is a folder\n  Name a file in it")
    folder = file.parent
    if not folder.is_dir():
        problem = f"there is no folder {folder}\n  Make it first:  mkdir -p {folder}"
        raise _unwritable(file, option, problem)
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise _unwritable(file, option, "no permission\n  Name another file")


def write_destination(file: Path, data: bytes, option: str = "") -> None:
    """Write a file whole.

    Raises:
        SettingsError: if that fails.
    """
    try:
        file.write_bytes(data)
    except OSError as error:
        raise _unwritable(file, option, str(error.strerror)) from error


def _unwritable(file: Path, option: str, problem: str) -> SettingsError:
    return SettingsError(f"{option} {file}: cannot be written: {problem}".lstrip())
