"""The import contracts hold, and each is alive: a planted violation breaks it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VIOLATIONS = [
    pytest.param(
        "dtensor_registry/errors.py",
        "import dtensor_registry.placements",
        "floors",
        id="a lower floor imports a higher one",
    ),
    pytest.param(
        "dtensor_registry/settings.py",
        "import dtensor_registry.hookspecs",
        "floors",
        id="two modules of one floor",
    ),
    pytest.param(
        "dtensor_registry/helpers.py",
        "PLANTED = 1",
        "floors",
        id="a module without a floor",
    ),
    pytest.param(
        "dtensor_registry/rules/strategy.py",
        "def planted() -> None:\n    import torch.fx",
        "torch-free",
        id="a rule imports torch when it is called",
    ),
    pytest.param(
        "dtensor_registry/settings.py",
        "import dtensor_registry_matrix",
        "host-knows-no-plugin",
        id="the host imports a plugin",
    ),
    pytest.param(
        "dtensor_registry/cli/verify.py",
        "from dtensor_registry_kit import verify",
        "host-knows-no-kit",
        id="the host imports the kit",
    ),
    pytest.param(
        "dtensor_registry_kit/simulation/compare.py",
        "from dtensor_registry_kit.judging.check import check",
        "kit-floors",
        id="a lower floor of the kit imports a higher one",
    ),
    pytest.param(
        "dtensor_registry_kit/planted.py",
        "PLANTED = 1",
        "kit-floors",
        id="a module of the kit without a floor",
    ),
    pytest.param(
        "dtensor_registry_matrix/__init__.py",
        "from dtensor_registry.errors import RegistryError",
        "plugins-use-the-public-api",
        id="a plugin imports an inner module",
    ),
    pytest.param(
        "dtensor_registry_matrix/__init__.py",
        "import dtensor_registry_pointwise",
        "plugins-are-independent",
        id="a plugin imports another",
    ),
]


@pytest.fixture
def copy(checkout: Path, projects: dict[str, Path], tmp_path: Path) -> Path:
    """The sources of all packages side by side, with the contracts."""
    for package, folder in projects.items():
        source = folder / package if (folder / package).exists() else folder / "src" / package
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path / package, ignore=ignored)
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    return tmp_path


def verdicts(folder: Path) -> dict[str, str]:
    """What import-linter says of each contract, by id: KEPT or BROKEN."""
    command = "from importlinter.cli import lint_imports_command as run; run()"
    run = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = dict(re.findall(r"^(.+) (KEPT|BROKEN)(?: \(.*\))?$", run.stdout, re.MULTILINE))
    tables = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    contracts = tables["tool"]["importlinter"]["contracts"]
    assert found.keys() == {contract["name"] for contract in contracts}, run.stdout + run.stderr
    assert run.returncode == int("BROKEN" in found.values())
    return {contract["id"]: found[contract["name"]] for contract in contracts}


def test_contracts_hold(copy: Path) -> None:
    assert set(verdicts(copy).values()) == {"KEPT"}


def test_every_contract_has_a_planted_violation(copy: Path) -> None:
    planted = {case.values[2] for case in VIOLATIONS}
    assert planted == verdicts(copy).keys()


@pytest.mark.parametrize(("file", "line", "contract"), VIOLATIONS)
def test_planted_import_breaks_its_contract(
    copy: Path, file: str, line: str, contract: str
) -> None:
    with (copy / file).open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    assert verdicts(copy)[contract] == "BROKEN"
