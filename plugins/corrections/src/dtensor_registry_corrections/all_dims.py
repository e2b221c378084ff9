"""Reductions that name no dim, which torch takes for reductions of nothing.

`dim=[]` means all dims. torch's rules read it as none: a cut dim stays cut in a result that has
nothing to cut, each rank with the value of its own piece. The gradient of `amin` and of `amax` is
computed with such a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    MoveFirst,
    PlacedCall,
    SingleDimStrategy,
    amended,
)

Amend: TypeAlias = Callable[[PlacedCall], Compute | MoveFirst | None]

BECAUSE = "no dim is named, which means all dims, and torch reduces none"

_LEADING: dict[str, tuple[Any, ...]] = {
    "aten.linalg__powsum.default": (2,),
    "aten.linalg_vector_norm.default": (2,),
    "aten.norm.ScalarOpt_dim": (2,),
    "aten.norm.ScalarOpt_dim_dtype": (2,),
}
"""What stands between the tensor and the dims of an op."""


def over_all_dims(call: PlacedCall) -> Compute | None:
    """Name all dims of a tensor that is cut, where a reduction names none."""
    if call.arguments.get("dim") != [] or not call.tensors["self"].cuts():
        return None
    return Compute(_named)


def or_over_all_dims(other: Amend) -> Amend:
    """Amend reductions that name no dim, and all others as something else says."""
    return lambda call: over_all_dims(call) or other(call)


def shows_all_dims(op: str) -> Counterexample:
    """Give the smallest call of a reduction that names no dim, and keeps them."""
    options = (("dtype", "torch.float64"),) if op.endswith("_dtype") else ()
    # torch 2.13 has no way to put two results of nansum together, and raises.
    values = [2.0, 1.0] if op == "aten.nansum.default" else [4.0, 2.0, 1.0, 3.0]
    arguments = (Held("float64", values), *_LEADING.get(op, ()), [])
    return Counterexample("S(0)", arguments, (("keepdim", True), *options), op=op, because=BECAUSE)


def _named(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dims = list(range(args[0].ndim))
    at = 1 + len(_LEADING.get(str(op), ()))
    if len(args) > at:
        return op(*args[:at], dims, *args[at + 1 :], **kwargs)
    return op(*args, **{**kwargs, "dim": dims})


OPS = (
    "aten.logsumexp.default",
    "aten.mean.dim",
    "aten.norm.ScalarOpt_dim",
    "aten.norm.ScalarOpt_dim_dtype",
    "aten.std.correction",
    "aten.var.correction",
    "aten.var_mean.correction",
)
"""Ops of which nothing else is amended."""

ALL_DIMS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        list(OPS),
        amended(over_all_dims, because=BECAUSE),
        shows=tuple(map(shows_all_dims, OPS)),
    ),
)
