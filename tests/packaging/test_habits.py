"""What runs by itself, at a commit, on a change and each night, is what `make test` runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtensor_registry.torch_runtime.compat import TESTED

WORKFLOWS = ".github/workflows"


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text("utf-8"))


def recipe(checkout: Path, target: str) -> list[str]:
    """The commands of a target in the Makefile."""
    makefile = (checkout / "Makefile").read_text("utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert found is not None, target
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def runs(checkout: Path, name: str) -> list[str]:
    """The shell commands of a workflow."""
    jobs = load(checkout / WORKFLOWS / name)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_a_commit_runs_what_make_test_runs_before_pytest(checkout: Path) -> None:
    hooks = load(checkout / ".pre-commit-config.yaml")["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    *checks, pytest_command = recipe(checkout, "test")
    assert "pytest" in pytest_command
    assert [hook["entry"] for hook in hooks[0]["hooks"]] == checks
    assert {hook["pass_filenames"] for hook in hooks[0]["hooks"]} == {False}


def test_a_change_is_checked_on_both_ends_of_torch_and_python(checkout: Path) -> None:
    matrix = load(checkout / WORKFLOWS / "checks.yml")["jobs"]["quick"]["strategy"]["matrix"]
    assert matrix == {"torch": [TESTED[0], TESTED[-1]], "python": ["3.10", "3.14"]}
    assert any(command.startswith("make test ") for command in runs(checkout, "checks.yml"))


def test_the_night_runs_all_of_the_suite_on_both_ends_and_on_what_is_to_come(
    checkout: Path,
) -> None:
    jobs = load(checkout / WORKFLOWS / "nightly.yml")["jobs"]
    assert jobs["long"]["env"] == {"DTENSOR_REGISTRY_LONG": "1"}
    assert jobs["long"]["strategy"]["matrix"]["torch"] == [TESTED[0], TESTED[-1]]
    assert "make test" in runs(checkout, "nightly.yml")
    suite = next(step for step in jobs["pre-release"]["steps"] if step.get("id") == "suite")
    assert suite["continue-on-error"] is True
    assert any("GITHUB_STEP_SUMMARY" in command for command in runs(checkout, "nightly.yml"))


def test_workflows_call_targets_that_are_there(checkout: Path) -> None:
    makefile = (checkout / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    stamp = re.search(r"^CHECK_STAMP := \$\(VENV\)/(.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert stamp is not None
    targets = {*phony[1].split(), f".venv/{stamp[1]}"}
    commands = "\n".join(runs(checkout, "checks.yml") + runs(checkout, "nightly.yml"))
    called = set(re.findall(r"^make (\S+)", commands, re.MULTILINE))
    assert called
    assert called <= targets


def test_actionlint_finds_nothing(checkout: Path) -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("no actionlint: its package fetches the program when it is installed")
    files = sorted((checkout / WORKFLOWS).glob("*.yml"))
    done = subprocess.run(
        [actionlint, *map(str, files)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
