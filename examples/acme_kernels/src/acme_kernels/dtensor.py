"""How DTensor may shard the ops of acme_kernels: what `pip install acme-kernels` contributes.

A row is about one mesh dim: the placement of every output, then of every tensor input.

>>> import torch
>>> x = torch.empty(2, 3, device="meta")
>>> for row in rms_norm_rows(None, (x, x[0], 1e-5), {}): print(*row)
S?(0) S?(0) S?(0) R
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

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
        SingleDimStrategy(rms_norm, rms_norm_rows),
        SingleDimStrategy(rms_norm_backward, rms_norm_backward_rows),
        SingleDimStrategy(swiglu, pointwise(linear=[(1,)])),  # in up
        SingleDimStrategy(swiglu_backward, pointwise(linear=[(0,)], outputs=2)),  # in grad
    ]


def rms_norm_rows(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Rows:
    """`y, rstd <- x, weight`: vectors are independent, so any dim but the normalised last one."""
    return [[d, d, d, R] for d in _batch_dims(args[0])]


def rms_norm_backward_rows(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Rows:
    """`grad_x, grad_weight <- grad, x, weight, rstd`: as forward, and linear in grad.

    All vectors share the weight, so sharing them out leaves grad_weight a sum over the ranks.
    """
    return [*([d, P, d, d, R, d] for d in _batch_dims(args[1])), [P, P, P, R, R, R]]


def _batch_dims(x: Any) -> list[ShardingPlaceholder]:
    return [ShardingPlaceholder(d) for d in range(len(x.shape) - 1)]
