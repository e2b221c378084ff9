"""Tolerances that are passed by keyword, which torch never moves: each rank takes what it holds.

torch's rule for `linalg_pinv` wants them on every rank, and takes a cut or a pending one as it is.
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


def tolerance_in_parts(call: PlacedCall) -> Compute | None:
    """Bring tolerances to every rank before the op is run."""
    given = (call.tensors[name] for name in TOLERANCES if name in call.tensors)
    in_parts = any(tensor.cuts() or tensor.partials() for tensor in given)
    return Compute(_with_whole_tolerances) if in_parts else None


def _with_whole_tolerances(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return op(*args, **{name: _whole(value) for name, value in kwargs.items()})


def _whole(value: Any) -> Any:
    if not isinstance(value, DTensor):
        return value
    return value.redistribute(placements=[Replicate()] * value.device_mesh.ndim)


_MATRIX = Held("float64", [[4.0, 0.0], [0.0, 1.0]])

KEYWORDS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        "aten.linalg_pinv.atol_rtol_tensor",
        amended(
            tolerance_in_parts,
            because="a cut or pending tolerance, passed by keyword, is not moved",
        ),
        shows=(Counterexample("R, P(sum)", (_MATRIX,), (("atol", Held("float64", 0.25, 1.75)),)),),
    ),
)
