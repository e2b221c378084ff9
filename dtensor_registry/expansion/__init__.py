"""From rows on one mesh dim to one choice for the whole mesh."""

from dtensor_registry.expansion.choice import Choice
from dtensor_registry.expansion.enumeration import (
    Price,
    candidates,
    cheapest_exhaustive,
    objections,
)
from dtensor_registry.expansion.moves import Ask
from dtensor_registry.expansion.problem import (
    Candidate,
    Grouped,
    Problem,
    Row,
    TensorInput,
    show_tensor,
)
from dtensor_registry.expansion.rows import fill_rows, grouped_dims, shard_kinds
from dtensor_registry.expansion.search import cheapest
from dtensor_registry.expansion.validity import mixed_partial, objection, piece, splits, unshardable

__all__ = [
    "Ask",
    "Candidate",
    "Choice",
    "Grouped",
    "Price",
    "Problem",
    "Row",
    "TensorInput",
    "candidates",
    "cheapest",
    "cheapest_exhaustive",
    "fill_rows",
    "grouped_dims",
    "mixed_partial",
    "objection",
    "objections",
    "piece",
    "shard_kinds",
    "show_tensor",
    "splits",
    "unshardable",
]
