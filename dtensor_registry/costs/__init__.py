"""Prices of placement changes: pure, torch-free, equal to torch's own to the last bit."""

from dtensor_registry.costs.outlook import SLACK, Bounds, Effect, Outlook, Partway
from dtensor_registry.costs.plan import Collective, Step, needs_torch, steps
from dtensor_registry.costs.price import StepCost, itemise, price
from dtensor_registry.costs.topology import Topology

__all__ = [
    "SLACK",
    "Bounds",
    "Collective",
    "Effect",
    "Outlook",
    "Partway",
    "Step",
    "StepCost",
    "Topology",
    "itemise",
    "needs_torch",
    "price",
    "steps",
]
