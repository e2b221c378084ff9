"""Ops that treat each sample, or each plane of an image, for itself: gradients of pooling, of
padding and of losses, and of weight normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dtensor_registry import REPLICATE, ShardingPlaceholder, tensor_inputs
from dtensor_registry_structure.arguments import Row, line, linear

_NONE, _MEAN = 0, 1
"""Values of `reduction`. Source: `torch.nn.functional`, "none", "mean", "sum" in that order."""


@dataclass(frozen=True, slots=True)
class Planes:
    """The gradient of an op that works on the last `spatial` dims of its tensor.

    All tensors have the same dims before those; they are cut together. The gradient is linear
    in what comes first, the gradient of the output.
    """

    spatial: int

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
        """Return the rows for one call."""
        tensors = tensor_inputs(args, {})
        rest = [REPLICATE] * (len(tensors) - 1)
        separate = len(tensors[0].shape) - self.spatial
        cuts = [[ShardingPlaceholder(dim)] * (1 + len(tensors)) for dim in range(separate)]
        return [*cuts, *([partial, partial, *rest] for partial in linear(tensors[0]))]

    def __str__(self) -> str:
        return f"planes({self.spatial})"


def multi_margin_loss_backward_rows(
    grad_output: Any,
    self: Any,
    target: Any,
    p: Any,
    margin: Any,
    weight: Any = None,
    reduction: int = _MEAN,
) -> Iterator[Row]:
    """`multi_margin_loss_backward`, self (N, C) and target (N,): sample by sample.

    Under a mean the gradient is divided by the number of samples, and a rank knows its own only.
    """
    if reduction != _MEAN and len(self.shape) == 2:
        cut = ShardingPlaceholder(0)
        grad = cut if reduction == _NONE else REPLICATE
        yield line([cut], (grad_output, grad), (self, cut), (target, cut), (weight, REPLICATE))
    rest = [(tensor, REPLICATE) for tensor in (self, target, weight)]
    for partial in linear(grad_output):
        yield line([partial], (grad_output, partial), *rest)


def multilabel_margin_loss_backward_rows(
    grad_output: Any, self: Any, target: Any, reduction: int, is_target: Any
) -> Iterator[Row]:
    """`multilabel_margin_loss_backward`, self, target and is_target (N, C): sample by sample."""
    if reduction != _MEAN and len(self.shape) == 2:
        cut = ShardingPlaceholder(0)
        yield [cut, cut if reduction == _NONE else REPLICATE, cut, cut, cut]
    for partial in linear(grad_output):
        yield [partial, partial, REPLICATE, REPLICATE, REPLICATE]


def weight_norm_backward_rows(
    grad_w: Any, saved_v: Any, saved_g: Any, saved_norms: Any, dim: int
) -> Iterator[Row]:
    """`_weight_norm_interface_backward` -> (grad_v, grad_g): one norm for each index of `dim`.

    torch's CPU kernel divides by the number of indices, so its strategy allows no empty pieces.
    """
    yield [ShardingPlaceholder(dim % len(saved_v.shape))] * 6
    for partial in linear(grad_w):
        yield [partial, partial, partial, REPLICATE, REPLICATE, REPLICATE]
