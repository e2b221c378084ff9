"""Sharding rules for matrix products: mm, bmm, addmm, linear and their kin."""

from collections.abc import Iterable

from dtensor_registry import SingleDimStrategy, hookimpl
from dtensor_registry_matrix.rules import STRATEGIES


@hookimpl
def provide_single_dim_strategy() -> Iterable[SingleDimStrategy]:
    """Contribute the table of `rules`."""
    return STRATEGIES
