"""Sharding rules for everyday ops that are neither pointwise nor products of matrices."""

from collections.abc import Iterable

from dtensor_registry import SingleDimStrategy, hookimpl
from dtensor_registry_structure.rules import STRATEGIES


@hookimpl
def provide_single_dim_strategy() -> Iterable[SingleDimStrategy]:
    """Contribute the table of `rules`."""
    return STRATEGIES
