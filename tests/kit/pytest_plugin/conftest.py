"""A run of pytest inside a test: its own folder, no settings, no plugin but ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest


@dataclass(frozen=True)
class Run:
    """What a run of pytest said."""

    code: int
    out: str

    @property
    def counts(self) -> dict[str, int]:
        """How many tests passed, failed and so on, from the closing line."""
        found = re.findall(r"(\d+) (passed|failed|error|errors|skipped)", self.out.splitlines()[-1])
        return {word.removesuffix("s"): int(number) for number, word in found}

    @property
    def failed(self) -> list[str]:
        """The tests that failed, without their file."""
        return re.findall(r"^FAILED \S+?::(?:\w+::)?(\S+)", self.out, re.MULTILINE)


# Doctests have imported the plugin already when they ran in this process before.
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
OPTIONS = ("-p", "no:cacheprovider", "-W", "error", "-W", IMPORTED, "-q", "-rf")


@pytest.fixture
def vendor_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a test file in a folder of its own."""

    def write(source: str) -> Path:
        folder = tmp_path / "vendor"
        folder.mkdir(exist_ok=True)
        (folder / "test_vendor.py").write_text(dedent(source), "utf-8")
        return folder

    return write


@pytest.fixture
def run_tests(
    vendor_file: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., Run]]:
    """Run a test file that a vendor might write: `run_tests(source, *arguments)`.

    In this process, where torch is imported already.
    """
    path, modules = list(sys.path), set(sys.modules)

    def run(source: str, *arguments: str) -> Run:
        folder = vendor_file(source)
        monkeypatch.chdir(folder)
        others = ("-p", "no:timeout", "-p", "no:xdist", "--import-mode=importlib", "-c", "none.ini")
        (folder / "none.ini").write_text("[pytest]\n", "utf-8")
        capfd.readouterr()
        code = pytest.main([*OPTIONS, *others, "--rootdir", str(folder), *arguments, str(folder)])
        _forget(path, modules)
        return Run(int(code), capfd.readouterr().out)

    yield run
    _forget(path, modules)


def _forget(path: list[str], modules: set[str]) -> None:
    """Forget the vendor's modules, so that the next run of this process finds its own."""
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "vendor" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def run_fresh(vendor_file: Callable[[str], Path]) -> Callable[[str], Run]:
    """Run a test file in a process of its own, in which nothing is imported yet."""

    def run(source: str) -> Run:
        folder = vendor_file(source)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, "--rootdir", str(folder), str(folder)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        return Run(done.returncode, done.stdout)

    return run
