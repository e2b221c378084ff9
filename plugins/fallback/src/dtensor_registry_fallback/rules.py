"""The fallbacks, by name."""

from collections.abc import Sequence
from typing import Any

from dtensor_registry import (
    REPLICATE,
    FallbackStrategy,
    ShardingPlaceholder,
    count_outputs,
    tensor_inputs,
)


def batch(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Keep the leading dim sharded: in every output, and in every input as long as the first.

    Right for ops that treat the entries of a batch one by one: `f(cat(a, b)) = cat(f(a), f(b))`.
    No schema says whether an op does, so it runs only ops that the user names.

    >>> class Meta:
    ...     shape, dtype = (8, 4), None
    >>> [str(p) for row in batch("acme.op.default", (Meta(), Meta()), {}) for p in row]
    ['S?(0)', 'S?(0)', 'S?(0)']
    """
    inputs = tensor_inputs(args, kwargs)
    length = next((tensor.shape[0] for tensor in inputs if tensor.shape), None)
    if length is None:
        return []
    cut = ShardingPlaceholder(0)
    batched = [cut if t.shape and t.shape[0] == length else REPLICATE for t in inputs]
    return [[cut] * count_outputs(op) + batched]


def replicate(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Offer no row of its own: only all-Replicate, which is implied, remains.

    Right for every op whose result depends on nothing but its inputs: each rank holds all of
    them and computes the whole result. What else an op may do (draw random numbers, return a
    view) is the host's to refuse.

    >>> replicate("acme.op.default", (), {})
    []
    """
    return []


FALLBACKS = (
    FallbackStrategy("batch", batch, named_only=True),
    FallbackStrategy("replicate", replicate),
)
