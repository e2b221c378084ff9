"""torch's dispatcher and propagator for DTensor: everything that runs a call begins here."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import DTensor


def dispatcher() -> Any:
    """torch's dispatcher for DTensor."""
    return DTensor._op_dispatcher


def propagator() -> Any:
    """torch's sharding propagator; looked up each time, since it may be replaced."""
    return dispatcher().sharding_propagator
