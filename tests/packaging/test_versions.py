"""What is declared about versions of torch is what is run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from dtensor_registry.torch_runtime.compat import TESTED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_one"/>
<testcase classname="tests.a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.a" name="test_three"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def matrix(checkout: Path) -> dict[str, Any]:
    """The names in scripts/test_matrix.py."""
    return runpy.run_path(str(checkout / "scripts" / "test_matrix.py"), run_name="program")


def torch_ranges(projects: dict[str, Path]) -> dict[str, Requirement]:
    found = {}
    for package, folder in projects.items():
        declared = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for text in declared["dependencies"]:
            if Requirement(text).name == "torch":
                found[package] = Requirement(text)
    return found


def test_the_matrix_runs_what_the_host_says_is_tested(matrix: dict[str, Any]) -> None:
    assert matrix["VERSIONS"] == TESTED


def test_the_declared_range_is_the_minor_versions_that_are_tested(
    projects: dict[str, Path],
) -> None:
    minors = [Version(version).release[:2] for version in TESTED]
    major = minors[0][0]
    around = [f"{major}.{minor}.1" for minor in range(minors[0][1] - 2, minors[-1][1] + 3)]
    for package, requirement in torch_ranges(projects).items():
        allowed = [Version(v).release[:2] for v in around if requirement.specifier.contains(v)]
        assert allowed == minors, package


def test_an_ordinary_run_is_on_a_tested_version(checkout: Path) -> None:
    lines = (checkout / "constraints.txt").read_text("utf-8").splitlines()
    assert {line for line in lines if line.startswith("torch==")} <= {f"torch=={v}" for v in TESTED}


def test_the_matrix_runs_every_test_that_an_ordinary_run_does(
    matrix: dict[str, Any], checkout: Path
) -> None:
    declared = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    patterns = declared["tool"]["pytest"]["ini_options"]["testpaths"]
    roots = [root for pattern in patterns for root in checkout.glob(pattern)]
    folders = [checkout / folder for folder in matrix["folders"]()]
    files = [file for root in roots for file in root.rglob("test_*.py")]
    left = [f for f in (*files, *roots[:1]) if not any(f.is_relative_to(d) for d in folders)]
    assert left == []
    makefile = (checkout / "Makefile").read_text("utf-8")
    assert f"PYTEST_ARGS ?= {' '.join(matrix['PYTEST_ARGS'])}" in makefile


def test_the_page_names_what_failed_and_why_tests_were_skipped(
    matrix: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "versions.md"
    begin, end = matrix["MARKS"]
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    runs = [matrix["read"](REPORT, version, "tests/a", 1.6) for version in ("1.0", "2.0")]
    matrix["write"](page, runs)
    assert page.read_text() == (
        f"before\n{begin}\n"
        "Passed / failed / skipped, seconds.\n\n"
        "| tests | torch 1.0 | torch 2.0 |\n|---|---|---|\n"
        "| tests/a | 1 / 1 / 1, 2 s | 1 / 1 / 1, 2 s |\n"
        "| all | 1 / 1 / 1, 2 s | 1 / 1 / 1, 2 s |\n\n"
        "- failed on 1.0: `tests.a::test_two`\n- failed on 2.0: `tests.a::test_two`\n"
        "- skipped on 1.0: 1 for: no GPU\n- skipped on 2.0: 1 for: no GPU\n"
        f"{end}\nafter\n"
    )
    assert list(tmp_path.iterdir()) == [page]


def test_a_run_that_pytest_did_not_finish_counts_as_failed(
    matrix: dict[str, Any],
) -> None:
    found = matrix["run"](Path(sys.executable), "1.0", "tests/no_such_folder")
    assert [name.partition(" with ")[0] for name in found.failed] == [
        "tests/no_such_folder: pytest ended"
    ]
