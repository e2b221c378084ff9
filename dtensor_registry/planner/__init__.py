"""From rows on one mesh dim to the cheapest choice for the whole mesh: prices, search, oracle.

Pure: it imports no torch, and its prices equal torch's own to the last bit.
"""

from dtensor_registry.planner.concrete_rows import fill_rows, grouped_dims, shard_kinds
from dtensor_registry.planner.exhaustive import Price, candidates, cheapest_exhaustive, objections
from dtensor_registry.planner.lower_bound import SLACK, Bounds, Effect, LowerBound, PrefixPrice
from dtensor_registry.planner.prices import StepCost, itemise, price
from dtensor_registry.planner.problem import (
    Candidate,
    Grouped,
    Problem,
    Row,
    TensorInput,
)
from dtensor_registry.planner.redistribution import (
    Collective,
    RedistributionStep,
    needs_torch,
    steps,
)
from dtensor_registry.planner.result import SearchResult
from dtensor_registry.planner.search import cheapest
from dtensor_registry.planner.targets import Ask
from dtensor_registry.planner.topology import Topology
from dtensor_registry.planner.validity import mixed_partial, objection, piece, splits, unshardable

__all__ = [
    "SLACK",
    "Ask",
    "Bounds",
    "Candidate",
    "Collective",
    "Effect",
    "Grouped",
    "LowerBound",
    "PrefixPrice",
    "Price",
    "Problem",
    "RedistributionStep",
    "Row",
    "SearchResult",
    "StepCost",
    "TensorInput",
    "Topology",
    "candidates",
    "cheapest",
    "cheapest_exhaustive",
    "fill_rows",
    "grouped_dims",
    "itemise",
    "mixed_partial",
    "needs_torch",
    "objection",
    "objections",
    "piece",
    "price",
    "shard_kinds",
    "splits",
    "steps",
    "unshardable",
]
