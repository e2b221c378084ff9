"""What torch's own sharding rules have wrong, mended entry by entry."""

from collections.abc import Iterable

from dtensor_registry import SingleDimStrategy, hookimpl
from dtensor_registry_corrections.rules import STRATEGIES


@hookimpl
def provide_single_dim_strategy() -> Iterable[SingleDimStrategy]:
    """Contribute the table of `rules`."""
    return STRATEGIES
