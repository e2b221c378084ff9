"""What a rule answers for a typical call of its op: square tensors, defaults for the rest.

Nothing is computed: whether an op takes a call is asked of its shape function. So this is quick
for all ops of an environment, and the same in every process.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from dtensor_registry.errors import RuleError
from dtensor_registry.rules import is_tensor, tensor_inputs
from dtensor_registry.rules.metadata import TensorMeta
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry.torch_runtime.installed_rule import InstalledRule

_SIZE = 6
_RANKS = (2, 3, 1, 4)
_TRIES = 64
_LISTED = 2
"""Tensors in a list."""

_BINDING = torch.zeros(1, device="cpu")
"""Calls Python from C++; see `_call_in_silence`."""

_VALUES: dict[str, Any] = {
    "number": 1,
    "int": 1,
    "float": 0.5,
    "bool": False,
    "str": "mean",
    "List[int]": [0],
    "List[float]": [0.5],
    "List[bool]": [False],
}


def typical_rows(op: OpOverload, rule: InstalledRule) -> tuple[str, ...] | None:
    """Ask a rule for its rows.

    Args:
        op: what the rule is for.
        rule: it is asked with tensors of several ranks until it has an answer.

    Returns:
        The rows as printed, in the rule's order; None if it answers none of the calls.
    """
    answer: tuple[str, ...] | None = None
    for args, kwargs in itertools.islice(calls_of(op), _TRIES):
        outs = _results(op, args, kwargs)
        if outs is None:
            continue
        kwargs |= outs
        try:
            rows = rule.rows(op, args, kwargs)
        except RuleError:
            continue  # not a call that the rule is meant for
        inputs = len(tensor_inputs(args, kwargs))
        answer = tuple(show_row(row, inputs) for row in rows)
        if answer:
            break
    return answer


def calls_of(op: OpOverload) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Make calls: all tensors of one rank first, then of mixed ones."""
    arguments = op._schema.arguments
    tensors = sum(_is_tensor(argument) for argument in arguments)
    alike = [(rank,) * tensors for rank in _RANKS]
    for ranks in dict.fromkeys((*alike, *itertools.product(_RANKS, repeat=min(tensors, 3)))):
        left = iter(ranks)
        values = [
            _tensors(argument, next(left, _RANKS[0])) if _is_tensor(argument) else _value(argument)
            for argument in arguments
        ]
        pairs = list(zip(arguments, values, strict=True))
        yield (
            tuple(value for argument, value in pairs if not argument.kwarg_only),
            {a.name: value for a, value in pairs if a.kwarg_only and value is not None},
        )


def _results(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Ask an op whether it takes a call, as far as that can be known without numbers.

    Returns:
        None if it does not; else the tensors among `kwargs`, which are those that a result is
        written to, in the shape that the result has.
    """
    shaped = tree_map(
        lambda v: torch.empty(v.shape, dtype=v.dtype, device="meta") if is_tensor(v) else v,
        (args, kwargs),
        is_leaf=is_tensor,
    )
    try:
        _call_in_silence(lambda: op(*shaped[0], **shaped[1]))
    except NotImplementedError:
        return {}  # it has no shape function
    except Exception:
        return None
    return {
        name: TensorMeta(tuple(value.shape), value.stride(), value.dtype)
        for name, value in shaped[1].items()
        if isinstance(value, torch.Tensor)
    }


def _call_in_silence(call: Callable[[], object]) -> None:
    """Make a call without a warning: of a deprecated op, of an `out` that is resized.

    A warning of C++ becomes one of Python only inside a binding that looks after it. The call of
    an `OpOverload` goes through none, so it would be printed; `apply_` is one.

    >>> vector, square = torch.empty(6, device="meta"), torch.empty(6, 6, device="meta")
    >>> _call_in_silence(lambda: torch.ops.aten.sum.out(vector, out=square))
    >>> square.shape
    torch.Size([])
    """

    def made(number: float) -> float:
        call()
        return number

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _BINDING.apply_(made)


def _is_tensor(argument: Any) -> bool:
    """Say whether an argument gets tensors; one that may be left out is."""
    return "Tensor" in str(argument.type) and not argument.has_default_value()


def _tensors(argument: Any, rank: int) -> Any:
    meta = TensorMeta(
        (_SIZE,) * rank,
        tuple(_SIZE ** (rank - 1 - dim) for dim in range(rank)),
        torch.float32,
    )
    return [meta] * _LISTED if "List[" in str(argument.type) else meta


def _value(argument: Any) -> Any:
    kind = str(argument.type)
    if argument.has_default_value():
        return argument.default_value
    if kind.startswith("Optional[") or argument.name.startswith(("dim", "axis")):
        return 0 if kind == "int" else _VALUES.get(kind)
    return _VALUES.get(kind)
