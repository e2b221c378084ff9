"""Tolerances that are passed by keyword, which torch never moves: pending ones are taken as held.

torch's rule for `linalg_pinv` wants them on every rank, and each rank takes the part that it has.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import DTensor, Replicate

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    PlacedCall,
    SingleDimStrategy,
    amended,
)

TOLERANCES = ("atol", "rtol")


def pending_tolerance(call: PlacedCall) -> Compute | None:
    """Reduce tolerances before the op is run."""
    given = (call.tensors[name] for name in TOLERANCES if name in call.tensors)
    return Compute(_with_whole_tolerances) if any(t.partials() for t in given) else None


def _with_whole_tolerances(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return op(*args, **{name: _reduced(value) for name, value in kwargs.items()})


def _reduced(value: Any) -> Any:
    if not isinstance(value, DTensor):
        return value
    return value.redistribute(
        placements=[Replicate() if p.is_partial() else p for p in value.placements]
    )


_MATRIX = Held("float64", [[4.0, 0.0], [0.0, 1.0]])

KEYWORDS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        "aten.linalg_pinv.atol_rtol_tensor",
        amended(pending_tolerance, because="a pending tolerance, passed by keyword, is not moved"),
        shows=(Counterexample("R, P(sum)", (_MATRIX,), (("atol", Held("float64", 0.25, 1.75)),)),),
    ),
)
