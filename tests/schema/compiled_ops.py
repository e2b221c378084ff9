"""Ops of one model: differentiable by a plugin's rule, by the executor, by a fallback; a write."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import dtensor_registry as dr
from dtensor_registry import ShardingPlaceholder as S


@torch.library.custom_op("schema_compiled::scale", mutates_args=())
def scale(x: Tensor, w: Tensor) -> Tensor:
    return x * w.cumsum(0)


@torch.library.custom_op("schema_compiled::scale_backward", mutates_args=())
def scale_backward(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return grad * w.cumsum(0), (grad * x).flip(0).cumsum(0).flip(0)


# Keyword tensors: torch never moves them, the executor does. custom_op knows none of them.
LIBRARY = torch.library.Library("schema_compiled", "FRAGMENT")
LIBRARY.define("shift(Tensor x, *, Tensor by) -> Tensor")
LIBRARY.define("shift_backward(*, Tensor grad) -> Tensor")
LIBRARY.impl("shift", lambda x, *, by: x * 2 + by.cumsum(0), "CompositeExplicitAutograd")
LIBRARY.impl("shift_backward", lambda *, grad: grad * 2, "CompositeExplicitAutograd")
OPS = torch.ops.schema_compiled


class Shift(torch.autograd.Function):
    """Differentiates `shift` in its first argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: Tensor) -> Tensor:
        shifted: Tensor = OPS.shift(x, by=by)
        return shifted

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return OPS.shift_backward(grad=grads[0]), None


@torch.library.custom_op("schema_compiled::mix", mutates_args=())
def mix(x: Tensor) -> Tensor:
    return x + x.flip(0).cumsum(0)


@torch.library.custom_op("schema_compiled::mix_backward", mutates_args=())
def mix_backward(grad: Tensor) -> Tensor:
    return grad + grad.cumsum(0).flip(0)


@torch.library.custom_op("schema_compiled::note", mutates_args=("seen",))
def note(seen: Tensor, x: Tensor) -> None:
    seen.add_(x.cumsum(0))


for op in (scale, mix, mix_backward):
    op.register_fake(lambda x, *_: torch.empty_like(x))
scale_backward.register_fake(lambda grad, x, w: (torch.empty_like(x), torch.empty_like(w)))
note.register_fake(lambda seen, x: None)

scale.register_autograd(
    lambda ctx, grad: scale_backward(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
mix.register_autograd(
    lambda ctx, grad: mix_backward(grad), setup_context=lambda ctx, inputs, output: None
)


def register_rules() -> list[dr.Registration]:
    """Give rules to all but `mix` and `note`, which fall back."""
    widths: dict[Any, int] = {
        scale: 3,
        scale_backward: 5,
        OPS.shift.default: 3,
        OPS.shift_backward.default: 2,
    }
    return [dr.register_single_dim_strategy(op)(_columns(width)) for op, width in widths.items()]


def _columns(width: int) -> Any:
    return lambda op, args, kwargs: [[S(1)] * width]


def model(x: Tensor, w: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    """Run all of them."""
    scaled = scale(x, w)
    note(seen, b)
    mixed: Tensor = mix(Shift.apply(scaled, b))
    return mixed
