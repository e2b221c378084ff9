"""Where the checkout is, and what is released from it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def projects(checkout: Path) -> dict[str, Path]:
    """The import package of each released distribution, and the folder of its pyproject."""
    return {
        "dtensor_registry": checkout,
        "dtensor_registry_kit": checkout / "kit",
        "dtensor_registry_pointwise": checkout / "plugins" / "pointwise",
        "dtensor_registry_matrix": checkout / "plugins" / "matrix",
        "dtensor_registry_corrections": checkout / "plugins" / "corrections",
        "dtensor_registry_structure": checkout / "plugins" / "structure",
        "dtensor_registry_fallback": checkout / "plugins" / "fallback",
        "acme_kernels": checkout / "examples" / "acme_kernels",
    }
