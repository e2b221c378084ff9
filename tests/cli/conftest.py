"""Really installed distributions, in a folder of the test's own, and the program on them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

import dtensor_registry
import dtensor_registry_kit
from dtensor_registry.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command wrote, without the blanks that fill a table's cells, and its exit code."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Site:
    """A folder of distributions as pip leaves them, and a Python that finds no other plugins.

    Attributes:
        folder: where the distributions are.
        path: what Python needs beside them: every package of this environment but plugins.
        working: the working directory, which is where settings files would be.
    """

    folder: Path
    path: tuple[str, ...]
    working: Path

    def install(
        self,
        distribution: str,
        version: str,
        plugins: Mapping[str, str],
        commands: Mapping[str, str] | None = None,
        **modules: str,
    ) -> None:
        """Write a dist-info folder and module files.

        Args:
            distribution: its name.
            version: its version.
            plugins: entry points in our group, name -> module.
            commands: entry points in the group of commands, name -> object.
            modules: name -> source.
        """
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n", "utf-8"
        )
        groups = {"dtensor_registry": plugins, "dtensor_registry.commands": commands or {}}
        declared = "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in groups.items()
            if entries
        )
        (info / "entry_points.txt").write_text(declared, "utf-8")
        for module, source in modules.items():
            (self.folder / f"{module}.py").write_text(dedent(source), "utf-8")

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """This process's environment, with no settings but the given ones."""
        kept = {name: value for name, value in os.environ.items() if not _decides(name)}
        paths = os.pathsep.join((str(self.folder), *self.path))
        return {**kept, **settings, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}

    def run(self, *arguments: str, settings: Mapping[str, str] | None = None) -> Outcome:
        """Run the program in a fresh interpreter."""
        return self.python("-m", "dtensor_registry.cli", *arguments, settings=settings)

    def python(self, *arguments: str, settings: Mapping[str, str] | None = None) -> Outcome:
        """Run a fresh interpreter; -S, so that it does not add site-packages by itself."""
        done = subprocess.run(
            [sys.executable, "-S", *arguments],
            cwd=self.working,
            env=self.environment(settings or {}),
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, without_padding(done.stdout), done.stderr)


def _decides(variable: str) -> bool:
    """Say whether an environment variable changes what the program does or how it looks."""
    return variable.startswith("DTENSOR_REGISTRY_") or variable in ("FORCE_COLOR", "NO_COLOR")


def without_padding(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This environment's packages as links, without those that are plugins."""
    links = tmp_path_factory.mktemp("packages")
    # First, since they need not be installed; the links of installed ones would be the same.
    for package in (dtensor_registry, dtensor_registry_kit):
        (links / package.__name__).symlink_to(Path(str(package.__file__)).parent)
    for folder in _folders_of_distributions():
        for entry in folder.iterdir():
            link = links / entry.name
            if not _is_plugin(entry) and not link.is_symlink():
                link.symlink_to(entry)
    return links


def _folders_of_distributions() -> list[Path]:
    return [Path(path) for path in sys.path if any(Path(path).glob("*.dist-info"))]


def _is_plugin(entry: Path) -> bool:
    declared = entry / "entry_points.txt"
    return declared.is_file() and "[dtensor_registry]" in declared.read_text("utf-8")


@pytest.fixture
def site(tmp_path: Path, packages: Path) -> Site:
    """An empty folder to install distributions in."""
    folder, working = tmp_path / "site", tmp_path / "working"
    folder.mkdir()
    working.mkdir()
    return Site(folder, (str(packages),), working)


@pytest.fixture
def call(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Outcome]]:
    """Run the program in this process, where torch is imported once for all tests.

    It sees the same distributions as `site.run`. Modules of the site are forgotten afterwards.
    """
    elsewhere = {str(folder) for folder in _folders_of_distributions()}
    rest = [path for path in sys.path if path not in elsewhere]
    monkeypatch.setattr(sys, "path", [str(site.folder), *site.path, *rest])
    monkeypatch.chdir(site.working)
    for variable in filter(_decides, list(os.environ)):
        monkeypatch.delenv(variable)

    def run(*arguments: str, settings: Mapping[str, str] | None = None) -> Outcome:
        importlib.invalidate_caches()
        with pytest.MonkeyPatch.context() as environment:
            for name, value in (settings or {}).items():
                environment.setenv(name, value)
            code = main(arguments)
        captured = capsys.readouterr()
        return Outcome(code, without_padding(captured.out), captured.err)

    before = set(sys.modules)
    yield run
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site.folder)):
            del sys.modules[name]
