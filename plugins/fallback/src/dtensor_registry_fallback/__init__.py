"""Fallbacks for ops that nobody has a rule for."""

from collections.abc import Iterable

from dtensor_registry import FallbackStrategy, hookimpl
from dtensor_registry_fallback.rules import FALLBACKS

__all__ = ["provide_fallback"]


@hookimpl
def provide_fallback() -> Iterable[FallbackStrategy]:
    """Contribute `batch` and `replicate`."""
    return FALLBACKS
