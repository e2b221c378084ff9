"""Calls of ops that no sample reaches, made from calls of their next of kin.

Most ops come in several overloads: in place, with `out=`, with a number for a tensor. torch's
samples reach only some. A call of one overload is rewritten for another argument by argument,
and kept only if the op itself accepts it on fake tensors. What has no kin gets plain tensors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_map_only

from tests.adoption.calls import Call, Calls, TensorLike, describe, leaves, quiet

NUMBER = 2
"""What stands in for a number where the other overload had a tensor."""
PLAIN = [TensorLike((6, 5), (5, 1), dtype) for dtype in (torch.float32, torch.int64)]
NUMBERS = ("number", "Scalar", "float", "int")


def related(ops: Iterable[OpOverload], known: Calls, per_op: int) -> Calls:
    """Make calls of ops that have none.

    Args:
        ops: the ops wanted; those in `known` are passed over.
        known: recorded calls.
        per_op: how many calls to make of each.
    """
    kin: dict[str, list[Call]] = {}
    for op, calls in known.items():
        kin.setdefault(_family(op), []).extend(calls[:per_op])
    made: Calls = {}
    with quiet():
        for op in ops:
            if op not in known:
                rewritten = (_rewrite(call, op) for call in kin.get(_family(op), ()))
                plain = (_plain(op, tensor) for tensor in PLAIN)
                accepted = (c for c in itertools.chain(rewritten, plain) if c is not None)
                made[op] = list(itertools.islice(accepted, per_op))
    return {op: calls for op, calls in made.items() if calls}


def _family(op: OpOverload) -> str:
    """Name what in-place and other variants of one op have in common.

    >>> _family(torch.ops.aten.add_.Tensor), _family(torch.ops.aten.__ixor__.Scalar)
    ('add', 'xor')
    """
    name = op._schema.name.split("::")[1]
    name = re.sub(r"^__i?(\w+)__$", r"\1", name).rstrip("_").removesuffix("_functional")
    return {"clip": "clamp", "true_divide": "div"}.get(name, name)


def _rewrite(call: Call, op: OpOverload) -> Call | None:
    """Give an op the arguments of a call of its kin; None if it does not take them."""
    names = [argument.name for argument in call.op._schema.arguments]
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    wanted = {argument.name for argument in op._schema.arguments}
    if any(name not in wanted for name, value in given.items() if _has_tensor(value)):
        return None  # a kernel may crash for want of a tensor
    outs = [argument.name for argument in op._schema.arguments if argument.is_out]
    if outs:
        results = _results(call.op, call.args, call.kwargs)
        if results is None or len(results) != len(outs):
            return None
        given.update(zip(outs, results, strict=True))
    return _call(op, given, call.tensors[0])


def _plain(op: OpOverload, tensor: TensorLike) -> Call | None:
    """Give an op the same tensor for every tensor, `out=` included."""
    if "out" in str(op) or "int[]" in str(op._schema):
        return None
    kinds = {argument.name: str(argument.type) for argument in op._schema.arguments}
    kinds = {name: kind for name, kind in kinds.items() if "Optional" not in kind}
    lists = {name: [tensor, tensor] for name, kind in kinds.items() if kind == "List[Tensor]"}
    tensors = {name: tensor for name, kind in kinds.items() if kind == "Tensor"}
    numbers = {name: NUMBER for name, kind in kinds.items() if kind in NUMBERS}
    many = {name: [NUMBER, NUMBER] for name, kind in kinds.items() if kind == "List[number]"}
    return _call(op, {**lists, **tensors, **numbers, **many}, tensor)


def _call(op: OpOverload, given: Mapping[str, Any], tensor: TensorLike) -> Call | None:
    """Make a call of an op from values by name, if it accepts them."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in op._schema.arguments:
        if argument.name in given:
            value = _fit(given[argument.name], str(argument.type), tensor)
        elif argument.kwarg_only:
            continue
        elif argument.has_default_value():
            value = argument.default_value
        else:
            return None
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    if _results(op, args, kwargs) is None:
        return None
    return Call(op, tuple(args), kwargs)


def _fit(value: Any, kind: str, tensor: TensorLike) -> Any:
    """Turn a tensor into a number, or a number into a tensor, where the schema wants it."""
    if kind in NUMBERS and isinstance(value, TensorLike):
        return NUMBER
    if kind == "Tensor" and isinstance(value, (int, float, complex)):
        return tensor
    if kind == "List[number]" and isinstance(value, list):
        return [NUMBER] * len(value)
    return value


def _results(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[TensorLike] | None:
    """Run a call on fake tensors; None if the op refuses it."""

    def fake(like: TensorLike) -> torch.Tensor:
        return torch.empty_strided(like.shape, like.stride, dtype=like.dtype)

    with FakeTensorMode():
        given = tree_map_only(
            TensorLike, fake, (tuple(args), dict(kwargs)), is_leaf=_is_tensor_like
        )
        try:
            results = op(*given[0], **given[1])
        except Exception:  # the op says no, in whatever way its fake kernel does
            return None
    tensors = results if isinstance(results, (list, tuple)) else [results]
    return [describe(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]


def _has_tensor(value: Any) -> bool:
    return any(_is_tensor_like(leaf) for leaf in leaves(value))


def _is_tensor_like(value: Any) -> bool:
    return isinstance(value, TensorLike)
