"""Arguments that mean something else on one rank's pieces than on the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from dtensor_registry._torch.schema import facts, input_names

LocalArguments = Callable[
    [Mapping[str, Any], Mapping[str, tuple[int, ...]], Sequence[tuple[int, ...] | None]],
    Mapping[str, Any],
]
"""See `SingleDimStrategy.local_arguments`."""


def with_local_arguments(
    function: LocalArguments,
    op: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outputs: Sequence[tuple[int, ...] | None],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Write the arguments of a local call anew, those changed that one rank passes otherwise.

    Args:
        function: says which these are.
        op: the op.
        args: positional arguments, tensors local.
        kwargs: keyword arguments, likewise.
        outputs: the local shape of each output; None for one that is no tensor.
    """
    declared = [argument.name for argument in facts(op).arguments]
    named = {**dict(zip(declared, args, strict=False)), **kwargs}
    tensors = [value for value in named.values() if isinstance(value, torch.Tensor)]
    names = input_names(op, args, kwargs, lambda value: isinstance(value, torch.Tensor))
    shapes = {name: tuple(tensor.shape) for tensor, (name, _) in zip(tensors, names, strict=False)}
    changed = function(named, shapes, outputs)
    positional = tuple(
        changed.get(name, value) for name, value in zip(declared, args, strict=False)
    )
    return positional, {name: changed.get(name, value) for name, value in kwargs.items()}
