"""Says where the names that were here are now: in the distribution `dtensor-registry-kit`."""

from __future__ import annotations

from typing import NoReturn

_MOVED = (
    "StrategyConformance",
    "check",
    "check_installed",
    "check_row",
    "overloads",
    "simulated_mesh",
    "torch_rows",
)


def __getattr__(name: str) -> NoReturn:
    # PEP 562. Of an AttributeError `from ... import` makes an ImportError of its own words.
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(
        f"dtensor_registry.testing is dtensor_registry_kit now, a distribution of its own.\n"
        f"  pip install dtensor-registry-kit\n  from dtensor_registry_kit import {name}"
    )
