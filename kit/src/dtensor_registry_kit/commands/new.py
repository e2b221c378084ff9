"""`dtensor-registry new NAME`: a plugin's package, complete, to be changed into your own."""

from __future__ import annotations

import argparse
import keyword
import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from string import Template

import importlib_metadata
from packaging.version import Version
from pydantic import BaseModel, ConfigDict

from dtensor_registry.cli.command import FINE, Command
from dtensor_registry.cli.output import print_json, print_lines
from dtensor_registry.discovery.load import HOST
from dtensor_registry.discovery.settings_check import RESERVED
from dtensor_registry.discovery.values import normal_name
from dtensor_registry.errors import SettingsError
from dtensor_registry.settings import read_settings

SKELETON = Path(__file__).with_name("skeleton")
"""The files of a package, as templates: `$name` in a text, `PACKAGE` in a path."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE)
"""Source: the names section of the specification of core metadata."""


class NewReport(BaseModel):
    """What `new --json` prints.

    Attributes:
        folder: where the package is.
        distribution: its name.
        plugin: what settings call the plugin.
        package: what is imported.
        files: below the folder.
    """

    model_config = ConfigDict(frozen=True)

    folder: str
    distribution: str
    plugin: str
    package: str
    files: tuple[str, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=_name, help="the distribution's name")
    parser.add_argument(
        "--into",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="an existing folder, in which one called NAME is made (default: this one)",
    )


def _name(text: str) -> str:
    """Check what can be known of a name without looking at what is installed."""
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot name a distribution: letters, digits and - _ . between them"
        )
    package = package_of(text)
    if not package.isidentifier() or keyword.iskeyword(package):
        raise argparse.ArgumentTypeError(
            f"{text!r} would be imported as {package!r}, which Python does not allow"
        )
    if normal_name(text) in RESERVED:
        raise argparse.ArgumentTypeError(f"{text!r} means something else in settings")
    return text


def package_of(name: str) -> str:
    """Name the import package of a distribution.

    >>> package_of("Acme-Rules")
    'acme_rules'
    """
    return normal_name(name).replace("-", "_")


def _run(arguments: argparse.Namespace) -> int:
    read_settings()  # a wrong one would show when the plugin is first used, as if it were its fault
    target = arguments.into / arguments.name
    _check_place(target, package_of(arguments.name))
    report = NewReport(
        folder=str(target),
        distribution=arguments.name,
        plugin=normal_name(arguments.name),
        package=package_of(arguments.name),
        files=_write(target, fill(arguments.name)),
    )
    if arguments.json:
        print_json(report)
    else:
        print_lines(*_next_steps(report))
    return FINE


def _check_place(target: Path, package: str) -> None:
    """Refuse to write over anything, or to hide a module that is there.

    Raises:
        SettingsError: saying why.
    """
    if not target.parent.is_dir():
        raise SettingsError(f"--into {target.parent}: there is no such folder")
    if os.path.lexists(target):
        raise SettingsError(f"{target} is there already; nothing was written")
    if find_spec(package) is not None:
        raise SettingsError(
            f"{target.name} would be imported as {package!r}, and a module of that name is"
            " installed already; nothing was written"
        )


def fill(name: str) -> dict[str, str]:
    """Make the files of a package: path below its folder -> text.

    >>> sorted(fill("acme-rules"))[-1]
    'tests/test_conformance.py'
    """
    words = {
        "name": name,
        "plugin": normal_name(name),
        "package": package_of(name),
        "host": _host(),
    }
    files = {}
    for file in sorted(SKELETON.rglob("*.in")):
        path = file.relative_to(SKELETON).as_posix().removesuffix(".in")
        text = Template(file.read_text("utf-8")).substitute(words)
        files[path.replace("PACKAGE", words["package"])] = text
    return files


def _host() -> str:
    """Require a host of this one's minor version: until 1.0 the next may change the API."""
    try:
        version = Version(importlib_metadata.version(HOST))
    except importlib_metadata.PackageNotFoundError:
        return HOST  # a source tree; there is no version to require
    return f"{HOST}=={version.major}.{version.minor}.*"


def _write(target: Path, files: dict[str, str]) -> tuple[str, ...]:
    """Write all files, or nothing: they come to their place in one step.

    Raises:
        SettingsError: if they cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as beside:
            made = Path(beside) / target.name
            for path, text in files.items():
                file = made / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
            made.rename(target)
    except OSError as error:
        raise SettingsError(f"{target}: cannot be written: {error.strerror}") from error
    return tuple(sorted(files))


def _next_steps(report: NewReport) -> list[str]:
    return [
        f"{report.folder}: {len(report.files)} files",
        *(f"  {file}" for file in report.files),
        "",
        "Install it and check it:",
        f"  pip install -e '{report.folder}[test]'",
        f"  pytest {report.folder}",
        f"  dtensor-registry verify {report.plugin}",
    ]


NEW = Command(
    name="new",
    summary="make a plugin's package, to be changed into your own",
    details="Make the package of a plugin: pyproject.toml with the entry point, three ops, their\n"
    "rules written in the three ways there are, calls to check them with, a conformance test and\n"
    "a README. It works as it is. Nothing is downloaded; an existing folder is refused.",
    example="dtensor-registry new acme-rules",
    configure=_configure,
    run=_run,
)
