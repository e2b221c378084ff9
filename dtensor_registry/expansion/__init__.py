"""From rows on one mesh dim to one choice for the whole mesh."""

from dtensor_registry.expansion.enumeration import Price, candidates, cheapest, objections
from dtensor_registry.expansion.problem import (
    Candidate,
    Problem,
    Row,
    TensorInput,
    fill_rows,
    mixed_partial,
    objection,
    unshardable,
)

__all__ = [
    "Candidate",
    "Price",
    "Problem",
    "Row",
    "TensorInput",
    "candidates",
    "cheapest",
    "fill_rows",
    "mixed_partial",
    "objection",
    "objections",
    "unshardable",
]
