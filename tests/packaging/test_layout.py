"""What the released packages have in common stays in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(scope="module")
def metadata(projects: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """The `[project]` table of each released distribution."""
    return {
        package: tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for package, folder in projects.items()
    }


def test_host_plugins_and_example_carry_one_version(metadata: dict[str, dict[str, Any]]) -> None:
    assert len({project["version"] for project in metadata.values()}) == 1


def test_every_plugin_accepts_the_host_beside_it(metadata: dict[str, dict[str, Any]]) -> None:
    host = metadata["dtensor_registry"]
    plugins = {package: p for package, p in metadata.items() if package != "dtensor_registry"}
    for package, project in plugins.items():
        requirements = [Requirement(text) for text in project["dependencies"]]
        needs = [r.specifier for r in requirements if r.name == host["name"]]
        assert len(needs) == 1, package
        assert needs[0].contains(host["version"]), package


def test_every_plugin_is_found_under_its_own_name(metadata: dict[str, dict[str, Any]]) -> None:
    entry_points = {
        package: project.get("entry-points", {}).get("dtensor_registry")
        for package, project in metadata.items()
    }
    assert entry_points == {
        "dtensor_registry": None,
        "dtensor_registry_kit": None,
        "dtensor_registry_pointwise": {"pointwise": "dtensor_registry_pointwise"},
        "dtensor_registry_matrix": {"matrix": "dtensor_registry_matrix"},
        "dtensor_registry_corrections": {"corrections": "dtensor_registry_corrections"},
        "dtensor_registry_structure": {"structure": "dtensor_registry_structure"},
        "dtensor_registry_fallback": {"fallback": "dtensor_registry_fallback"},
        "acme_kernels": {"acme": "acme_kernels.dtensor"},
    }


def test_every_direct_dependency_is_pinned(
    checkout: Path, metadata: dict[str, dict[str, Any]]
) -> None:
    pins = {
        canonicalize_name(Requirement(line).name)
        for line in (checkout / "constraints.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    }
    ours = {canonicalize_name(project["name"]) for project in metadata.values()}
    groups = [
        group
        for project in metadata.values()
        for group in [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    ]
    needed = {canonicalize_name(Requirement(text).name) for group in groups for text in group}
    assert needed - ours - pins == set()


def test_every_plugin_ships_the_same_license(checkout: Path, projects: dict[str, Path]) -> None:
    text = (checkout / "LICENSE").read_text("utf-8")
    for package, folder in projects.items():
        assert (folder / "LICENSE").read_text("utf-8") == text, package


def test_no_tests_folder_is_a_package(checkout: Path) -> None:
    """Two packages called `tests` would hide each other; importlib mode needs none."""
    folders = [
        checkout / "tests",
        *checkout.glob("plugins/*/tests"),
        *checkout.glob("examples/*/tests"),
    ]
    assert [str(init) for folder in folders for init in folder.rglob("__init__.py")] == []
