"""Losses that are means: torch divides by the number of elements of a piece, not of the whole.

torch has no rule for them. It derives placements from a decomposition, whose mean is over the
whole tensor, and then runs the loss's own kernel, which knows its piece alone. Forward the average
of the ranks' means is right only where all pieces are of one size; backward every rank divides by
too small a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    PlacedCall,
    SingleDimStrategy,
    amended,
)

NONE, MEAN, SUM = 0, 1, 2
"""Values of the argument `reduction`. Source: at::Reduction."""

FORWARD = {
    "aten.binary_cross_entropy.default": 3,
    "aten.binary_cross_entropy_with_logits.default": 4,
    "aten.huber_loss.default": 2,
    "aten.mse_loss.default": 2,
    "aten.smooth_l1_loss.default": 2,
    "aten.soft_margin_loss.default": 2,
}
"""Losses, and where each has its argument `reduction`."""

BACKWARD = {
    "aten.binary_cross_entropy_backward.default": 4,
    "aten.huber_loss_backward.default": 3,
    "aten.mse_loss_backward.default": 3,
    "aten.smooth_l1_loss_backward.default": 3,
    "aten.soft_margin_loss_backward.default": 3,
    "aten.binary_cross_entropy_backward.grad_input": 4,
    "aten.huber_loss_backward.out": 3,
    "aten.mse_loss_backward.grad_input": 3,
    "aten.smooth_l1_loss_backward.grad_input": 3,
    "aten.soft_margin_loss_backward.grad_input": 3,
}
"""Their gradients, likewise."""


def mean_of_uneven_pieces(call: PlacedCall) -> Compute | None:
    """Sum, where the mean would be over pieces of different sizes, and divide by all elements."""
    if call.arguments["reduction"] != MEAN:
        return None
    return None if all(t.is_even for t in call.tensors.values()) else Compute(_mean_of_all)


def gradient_of_pieces(call: PlacedCall) -> Compute | None:
    """Take the gradient of the sum, divided by the number of all elements."""
    if call.arguments["reduction"] != MEAN:
        return None
    return Compute(_gradient_of_mean) if any(t.cuts() for t in call.tensors.values()) else None


def _mean_of_all(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    each = _reduced(op, args, kwargs, FORWARD[str(op)], NONE)
    # As the kernel does: what is less precise than float32 is added up in float32.
    wider = each.float() if each.dtype.itemsize < 4 else each
    return (wider.sum() / each.numel()).to(each.dtype)


def _gradient_of_mean(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradient, *rest = args
    elements = math.prod(_broadcast([tensor.shape for tensor in args[1:3]]))
    return _reduced(op, (gradient / elements, *rest), kwargs, BACKWARD[str(op)], SUM)


def _reduced(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: int, reduction: int
) -> Any:
    """Call a loss with another reduction, whether the call names one or leaves it out."""
    if len(args) > at:
        return op(*args[:at], reduction, *args[at + 1 :], **kwargs)
    return op(*args, **{**kwargs, "reduction": reduction})


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Give the shape that shapes of equal rank, or shorter ones, broadcast to."""
    sizes: list[int] = []
    for shape in shapes:
        sizes = [1] * (len(shape) - len(sizes)) + sizes
        for at, size in enumerate(reversed(shape), start=1):
            if size != 1:
                sizes[-at] = size
    return tuple(sizes)


_PARTS = Held("float64", [[0.25], [0.5], [0.875]])
_GOALS = Held("float64", [[1.0], [0.0], [1.0]])
_UPSTREAM = Held("float64", ())
_CUT = "S(0), S(0)"

_OPTIONS: dict[str, tuple[Any, ...]] = {
    "aten.binary_cross_entropy.default": (None, MEAN),
    "aten.binary_cross_entropy_with_logits.default": (None, None, MEAN),
    "aten.huber_loss.default": (MEAN, 1.0),
    "aten.mse_loss.default": (MEAN,),
    "aten.smooth_l1_loss.default": (MEAN, 1.0),
    "aten.soft_margin_loss.default": (MEAN,),
    "aten.binary_cross_entropy_backward.default": (None, MEAN),
    "aten.huber_loss_backward.default": (MEAN, 1.0),
    "aten.mse_loss_backward.default": (MEAN,),
    "aten.smooth_l1_loss_backward.default": (MEAN, 1.0),
    "aten.soft_margin_loss_backward.default": (MEAN,),
}
"""What follows the tensors of a call that is a mean."""


def _shows_gradient(op: str) -> Counterexample:
    functional, _, form = op.rpartition(".")  # huber_loss_backward.out has a `grad_input`, too
    arguments = (_UPSTREAM, _PARTS, _GOALS, *_OPTIONS[f"{functional}.default"])
    if form == "default":
        return Counterexample(f"R, {_CUT}", arguments, op=op)
    return Counterexample(f"R, {_CUT}, S(0)", arguments, (("grad_input", _PARTS),), op=op)


MEANS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        list(FORWARD),
        amended(mean_of_uneven_pieces, because="the ranks' means of uneven pieces are averaged"),
        shows=tuple(Counterexample(_CUT, (_PARTS, _GOALS, *_OPTIONS[op]), op=op) for op in FORWARD),
    ),
    SingleDimStrategy(
        list(BACKWARD),
        amended(gradient_of_pieces, because="each rank divides by the elements of its own piece"),
        shows=tuple(map(_shows_gradient, BACKWARD)),
    ),
)
