"""Settings that leave the plugins which a test is about, and none else."""

from __future__ import annotations

from typing import Any

from dtensor_registry.settings import Settings


def only(*distributions: str, **overrides: Any) -> Settings:
    """Make settings with all defaults, whatever environment and files say, for some distributions.

    >>> only("acme-kernels").allowed
    ('acme-kernels',)
    """
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in Settings.model_fields.items()
    }
    return Settings(**{**defaults, "allowed": distributions, **overrides})
