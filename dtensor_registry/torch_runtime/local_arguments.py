"""Arguments that mean something else on one rank's pieces than on the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._ops import OpOverload

from dtensor_registry.rules.signature import named_tensors
from dtensor_registry.torch_runtime.schema import facts

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
    passed = [(p.name, value) for p, value in facts(op).signature.named(args, kwargs)]
    shapes = {
        name: tuple(tensor.shape)
        for argument, value in passed
        for name, tensor in named_tensors(argument, value)
    }
    changed = function(dict(passed), shapes, outputs)
    values = [changed.get(name, value) for name, value in passed]
    return tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :], strict=True))
