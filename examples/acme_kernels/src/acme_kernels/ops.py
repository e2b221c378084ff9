"""Two fused kernels and their backward kernels, as ops that torch knows by name.

The bodies are plain PyTorch, where a vendor would call a compiled kernel: to torch and to
DTensor the ops are opaque either way. In the shapes, B stands for any number of batch dims
and H for the hidden dim, which is the last. All outputs are contiguous.

>>> swiglu(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 2.0]))
tensor([0.0000, 1.4621])
>>> y, rstd = rms_norm(torch.tensor([[3.0, 4.0]]), torch.ones(2), 0.0)
>>> rstd
tensor([[0.2828]])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("acme::swiglu", mutates_args=())
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate one projection by another: `silu(gate) * up`, all three of shape (B, H).

    Source: N. Shazeer, "GLU Variants Improve Transformer" (2020), arXiv:2002.05202, section 2.
    """
    if gate.shape != up.shape:
        raise ValueError(f"acme::swiglu: gate {list(gate.shape)} and up {list(up.shape)} differ")
    return (gate * torch.sigmoid(gate) * up).contiguous()


@torch.library.custom_op("acme::swiglu_backward", mutates_args=())
def swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `swiglu` by gate and by up, both (B, H).

    Source: the product rule, with silu'(z) = s(z) * (1 + z * (1 - s(z))) and s the sigmoid.
    """
    sigmoid = torch.sigmoid(gate)
    grad_gate = grad * up * sigmoid * (1 + gate * (1 - sigmoid))
    return grad_gate.contiguous(), (grad * gate * sigmoid).contiguous()


@torch.library.custom_op("acme::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Scale every row of x to a root mean square of 1, then by weight.

    Args:
        x: (B, H).
        weight: (H,).
        eps: added to the mean square, so that a row of zeros stays finite.

    Returns:
        y (B, H), and rstd (B, 1): 1 / rms of each row, which the backward kernel needs again.

    Source: B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization" (2019),
    arXiv:1910.07467, equation 4.
    """
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"acme::rms_norm: weight {list(weight.shape)} for x {list(x.shape)}")
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * rstd * weight).contiguous(), rstd.contiguous()


@torch.library.custom_op("acme::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of `rms_norm`'s y by x (B, H) and by weight (H,).

    Source: the chain rule; with n = x * rstd and g = grad * weight, the gradient by x is
    rstd * (g - n * mean(g * n)), and the gradient by weight the sum of grad * n over B.
    """
    normalised = x * rstd
    scaled = grad * weight
    grad_x = rstd * (scaled - normalised * (scaled * normalised).mean(-1, keepdim=True))
    return grad_x.contiguous(), (grad * normalised).reshape(-1, x.shape[-1]).sum(0)


@swiglu.register_fake
def _(gate: Tensor, up: Tensor) -> Tensor:
    return gate.new_empty(gate.shape)


@swiglu_backward.register_fake
def _(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty((*x.shape[:-1], 1))


@rms_norm_backward.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _swiglu_setup(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _swiglu_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    grad_gate, grad_up = swiglu_backward(grad, *ctx.saved_tensors)
    return grad_gate, grad_up


def _rms_norm_setup(
    ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]
) -> None:
    x, weight, _ = inputs
    _, rstd = output
    ctx.save_for_backward(x, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)  # else every backward builds a zero gradient of rstd


def _rms_norm_vjp(
    ctx: Any, grad: Tensor | None, _rstd_grad: None
) -> tuple[Tensor | None, Tensor | None, None]:
    if grad is None:
        return None, None, None
    grad_x, grad_weight = rms_norm_backward(grad, *ctx.saved_tensors)
    return grad_x, grad_weight, None


swiglu.register_autograd(_swiglu_vjp, setup_context=_swiglu_setup)
rms_norm.register_autograd(_rms_norm_vjp, setup_context=_rms_norm_setup)
