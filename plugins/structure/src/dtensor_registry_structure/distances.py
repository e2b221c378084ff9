"""Distances, places in sorted sequences, and counts of values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dtensor_registry import (
    REPLICATE,
    Partial,
    ShardingPlaceholder,
    is_tensor,
    notation,
    row,
    rows,
)
from dtensor_registry_structure.arguments import Row, line, linear

_PAIRS = notation("b... p m, b... r m -> b... p r", fixed="m")
_GRADIENTS = notation("b... p r, b... p m, b... r m, b... p r -> b... p m", reduce="r")

PDIST_BACKWARD = rows(
    row(out="S(1)", self="S(1)"),
    row(out="P(sum)", grad="P(sum)"),
    row(out="P(avg)", grad="P(avg)"),
)


def cdist_rows(x1: Any, x2: Any, p: float, compute_mode: Any = None) -> Iterator[Row]:
    """`_cdist_forward(x1, x2, p)`, shapes (*B, P, M) and (*B, R, M) -> (*B, P, R).

    A distance is taken over all of M. Only where it is a plain sum (p = 1, and p = 0, which
    counts) or a maximum (p = inf) may M be cut.
    """
    yield from _PAIRS(None, (x1, x2), {})
    for kind in _over_features(p):
        yield [kind, ShardingPlaceholder(len(x1.shape) - 1), ShardingPlaceholder(len(x2.shape) - 1)]


def cdist_backward_rows(grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Iterator[Row]:
    """`_cdist_backward`: the gradient of x1, a sum over the points of x2, feature by feature.

    Shapes: grad and cdist (*B, P, R), x1 (*B, P, M), x2 (*B, R, M). autograd calls it with
    the same batches everywhere.
    """
    if tuple(x1.shape[:-2]) == tuple(grad.shape[:-2]) == tuple(x2.shape[:-2]):
        yield from _GRADIENTS(None, (grad, x1, x2, cdist), {})
    for partial in linear(grad):
        yield [partial, partial, REPLICATE, REPLICATE, REPLICATE]


def pdist_rows(self: Any, p: float = 2.0) -> Iterator[Row]:
    """`_pdist_forward(self, p)`, (N, M) -> (N (N - 1) / 2,): pairs cannot be cut, M perhaps."""
    for kind in _over_features(p):
        yield [kind, ShardingPlaceholder(1)]


def searchsorted_rows(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Iterator[Row]:
    """`searchsorted(sequence, values)`: each value is looked up for itself.

    The sequence has one dim, or the dims of the values; it is whole along the last. To cut it
    there and add up what the ranks find is right for a sequence that is sorted, which a rule
    cannot see, and wrong without a notice for one that is not.
    """
    last = len(self.shape) - 1
    for dim in range(last + 1):
        cut = ShardingPlaceholder(dim)
        entry = cut if len(sorted_sequence.shape) > 1 and dim < last else REPLICATE
        yield line([cut], (sorted_sequence, entry), (self, cut), (sorter, entry))


def bincount_rows(self: Any, weights: Any = None, minlength: Any = 0) -> Iterator[Row]:
    """`bincount(self, weights)`: linear in the weights.

    The length of the result is the largest value plus one, so the values stay whole.
    """
    for partial in linear(weights) if is_tensor(weights) else ():
        yield [partial, REPLICATE, partial]


def histogram_rows(
    self: Any,
    bins: Any = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Any = None,
    density: bool = False,
) -> Iterator[Row]:
    """`histogram(self, bins)` -> (counts, edges): counts of parts add up if the edges are given.

    Without edges or a range these are read off all values. With `density` counts are divided
    by their sum, which no rank knows.
    """
    if density:
        return
    if is_tensor(bins) or range is not None:
        for dim, _ in enumerate(self.shape):
            cut = ShardingPlaceholder(dim)
            inputs = [(self, cut), (bins, REPLICATE), (weight, cut)]
            yield line([Partial("sum"), REPLICATE], *inputs)
    for partial in linear(weight) if is_tensor(weight) else ():
        inputs = [(self, REPLICATE), (bins, REPLICATE), (weight, partial)]
        yield line([partial, REPLICATE], *inputs)


def _over_features(p: float) -> list[Partial]:
    if p in (0, 1):
        return [Partial("sum")]
    return [Partial("max")] if p == math.inf else []
