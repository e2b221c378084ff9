"""How DTensor may shard the ops of acme_kernels: what `pip install acme-kernels` contributes.

A row is about one mesh dim: the placement of every output, then of every tensor input.

>>> import torch
>>> x = torch.empty(2, 3, device="meta")
>>> for row in rms_norm_rows(None, (x, x[0], 1e-5), {}): print(*row)
S?(0) S?(0) S?(0) R
P(sum) R R P(sum)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from acme_kernels import rms_norm, rms_norm_backward, swiglu, swiglu_backward
from dtensor_registry import (
    REPLICATE,
    Partial,
    ShardingPlaceholder,
    SingleDimStrategy,
    hookimpl,
    pointwise,
)

Rows: TypeAlias = list[list[Any]]

R = REPLICATE
P = Partial("sum")


@hookimpl
def provide_single_dim_strategy() -> Iterable[SingleDimStrategy]:
    """One strategy for each of the four ops."""
    return [
        SingleDimStrategy(rms_norm, rms_norm_rows, samples=calls("BH H", 1e-3)),
        SingleDimStrategy(rms_norm_backward, rms_norm_backward_rows, samples=calls("BH BH H B1")),
        # Linear in up, and in grad.
        SingleDimStrategy(swiglu, pointwise(linear=[(1,)]), samples=calls("BH BH")),
        SingleDimStrategy(
            swiglu_backward, pointwise(linear=[(0,)], outputs=2), samples=calls("BH BH BH")
        ),
    ]


def calls(
    tensors: str, *rest: float
) -> Callable[[], Iterator[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Calls to check a rule with: three shapes of B, and tensors of shapes made from B and H."""

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        for batch in ((4,), (3, 5), ()):
            shapes = {"BH": (*batch, 6), "H": (6,), "B1": (*batch, 1)}
            made = (torch.rand(shapes[name]) - 0.3 for name in tensors.split())
            yield (*made, *rest), {}

    return samples


def rms_norm_rows(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Rows:
    """`y, rstd <- x, weight`: vectors are independent, so any dim but the normalised last one.

    And y is linear in the weight, of which rstd knows nothing.
    """
    return [*([d, d, d, R] for d in _batch_dims(args[0])), [P, R, R, P]]


def rms_norm_backward_rows(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Rows:
    """`grad_x, grad_weight <- grad, x, weight, rstd`: as forward, and linear in grad.

    All vectors share the weight, so sharing them out leaves grad_weight a sum over the ranks.
    """
    cut = [[d, P, d, d, R, d] for d in _batch_dims(args[1])]
    return [*cut, [P, P, P, R, R, R], [P, R, R, R, P, R]]


def _batch_dims(x: Any) -> list[ShardingPlaceholder]:
    return [ShardingPlaceholder(d) for d in range(len(x.shape) - 1)]
