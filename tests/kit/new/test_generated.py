"""The package that `new` makes works as it is: installed without a network, tested, verified."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dtensor_registry.cli import main
from dtensor_registry_kit.commands.verify import VerifyReport

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DOCS = Path(__file__).parents[3] / "docs"

SECONDS = 180
"""After which a child is stopped, with all that it started."""

pytest.importorskip("hatchling")


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    """Run a command that sees the generated package in `path`, and no settings."""
    hidden = ("PIP_", "PYTHONPATH", "PYTEST_", "DTENSOR_REGISTRY_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    paths = [str(path or ""), os.environ.get("PYTHONPATH", "")]
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={
            **environment,
            "PIP_CONFIG_FILE": os.devnull,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{command}\n{out}"
    return out


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated package; beside it, in `site`, it is installed."""
    folder = tmp_path_factory.mktemp("new")
    assert main(["new", "blue-rules", "--into", str(folder)]) == 0
    options = ["--no-build-isolation", "--no-index", "--no-deps", "--disable-pip-version-check"]
    run("pip", "install", *options, "--target", "site", "./blue-rules", cwd=folder)
    return folder / "blue-rules"


def test_its_tests_pass(project: Path) -> None:
    out = run("pytest", "-p", "no:cacheprovider", cwd=project, path=project.parent / "site")
    assert "21 passed" in out


def test_verify_trusts_its_rules(project: Path) -> None:
    command = ["dtensor_registry.cli", "verify", "blue-rules", "--jobs", "1", "--json"]
    out = run(*command, cwd=project.parent, path=project.parent / "site")
    report = json.loads(out)
    published = json.loads((DOCS / "verify.schema.json").read_text("utf-8"))
    assert set(report) == set(published["required"])
    VerifyReport.model_validate_json(out)
    assert {rule["op"]: (rule["state"], rule["samples"]) for rule in report["rules"]} == {
        "blue_rules.gated.default": ("trusted", "author"),
        "blue_rules.project.default": ("trusted", "author"),
        "blue_rules.shift.default": ("trusted", "author"),
    }


def test_its_sources_are_formatted_and_without_faults(project: Path) -> None:
    pytest.importorskip("ruff")
    run(
        "ruff",
        "check",
        "--isolated",
        "--select",
        "E,F,I,UP",
        "--line-length",
        "100",
        ".",
        cwd=project,
    )
    run("ruff", "format", "--isolated", "--check", "--line-length", "100", ".", cwd=project)
