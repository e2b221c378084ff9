"""Says where the names that were here are now: in the distribution `dtensor-registry-kit`."""

from __future__ import annotations

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    # PEP 562. No AttributeError: of it `from ... import` makes an ImportError of its own words.
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(
        f"dtensor_registry.testing is dtensor_registry_kit now, a distribution of its own.\n"
        f"  pip install dtensor-registry-kit\n  from dtensor_registry_kit import {name}"
    )
