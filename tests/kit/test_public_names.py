"""What authors may import from the kit, and what says where moved names are."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import dtensor_registry
import dtensor_registry_kit

PUBLIC = [
    "Derivation",
    "Finding",
    "ReferenceRun",
    "Report",
    "Sample",
    "StrategyConformance",
    "Verdict",
    "check",
    "check_installed",
    "check_row",
    "derive",
    "draw",
    "judge",
    "overloads",
    "run_reference",
    "simulated_mesh",
    "torch_rows",
    "verify",
]


def test_the_public_names_are_these() -> None:
    assert dtensor_registry_kit.__all__ == PUBLIC
    assert dir(dtensor_registry_kit) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported_and_is_no_module(name: str) -> None:
    assert callable(getattr(dtensor_registry_kit, name))


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'dtensor_registry_kit' has no attribute 'nope'"):
        dtensor_registry_kit.nope  # noqa: B018


def loaded(code: str) -> set[str]:
    """Which of some modules a program has loaded at its end."""
    watched = ["hypothesis", "numpy.testing", "pytest", "torch"]
    report = f"\nimport sys\nprint(*[name for name in {watched} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code + report],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_kit_imports_neither_torch_nor_pytest() -> None:
    assert loaded("import dtensor_registry_kit") == set()


def test_a_simulated_mesh_needs_no_pytest() -> None:
    code = """
from dtensor_registry_kit import simulated_mesh
with simulated_mesh("2x2") as mesh:
    assert mesh.shape == (2, 2)
"""
    assert "pytest" not in loaded(code)


def test_the_plugin_for_pytest_does_not_import_torch() -> None:
    found = loaded("import dtensor_registry_kit.pytest_plugin.fixtures")
    assert found == {"pytest"}


@pytest.mark.parametrize("name", ["StrategyConformance", "check_row", "simulated_mesh"])
def test_the_old_place_says_where_a_name_is(name: str) -> None:
    old = importlib.import_module("dtensor_registry.testing")
    with pytest.raises(ImportError, match=r"registry\.testing is dtensor_registry_kit") as e:
        getattr(old, name)
    assert str(e.value).endswith(f"from dtensor_registry_kit import {name}")


def test_the_host_says_where_derive_is() -> None:
    with pytest.raises(AttributeError, match="no longer has 'derive'") as caught:
        dtensor_registry.derive  # noqa: B018
    assert str(caught.value).endswith("from dtensor_registry_kit import derive")
