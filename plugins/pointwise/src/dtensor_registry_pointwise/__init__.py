"""Sharding strategies of the pointwise ops of aten and prims."""

from collections.abc import Iterable

from dtensor_registry import SingleDimStrategy, hookimpl
from dtensor_registry_pointwise.rules import FAMILIES


@hookimpl
def provide_single_dim_strategy() -> Iterable[SingleDimStrategy]:
    """Contribute one strategy per family."""
    return [family.strategy for family in FAMILIES.values()]
