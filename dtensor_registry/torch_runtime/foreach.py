"""Ops over lists of tensors that torch shards element by element: foreach and fused optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, TupleStrategy
from torch.distributed.tensor._ops.single_dim_strategy import (
    _resolve_foreach_elementwise_overload,
)

from dtensor_registry.torch_runtime.call import tensor_specs
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry.torch_runtime.schema import facts

_PREFIXES = ("aten._foreach_", "aten._amp_foreach_", "aten._fused_")


def runs_per_element(op_schema: OpSchema) -> bool:
    """Say whether torch decides a call once per element of its lists."""
    return str(op_schema.op).startswith(_PREFIXES) and any(
        isinstance(arg, TupleStrategy) for arg in op_schema.args_schema
    )


def element_of(op: OpOverload) -> OpOverload | None:
    """Find the op that a foreach op applies to each element of its lists, or None.

    >>> import torch
    >>> element_of(torch.ops.aten._foreach_add.List)
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    if not op._schema.name.rpartition("::")[2].startswith("_foreach_"):
        return None
    return _resolve_foreach_elementwise_overload(op)


def decide_elements(
    op_schema: OpSchema, output_meta: Any, decide: Callable[[OpSchema, Any], OpStrategy | None]
) -> TupleStrategy | None:
    """Decide a call element by element; elements that are alike are decided once.

    Args:
        op_schema: the call, its tensors given as strategies.
        output_meta: metadata of each element's output, or None.
        decide: decides one element's call, or gives None if it cannot.

    Returns:
        One strategy per element, or None if one cannot be decided.
    """
    lists = [arg for arg in op_schema.args_schema if isinstance(arg, TupleStrategy)]
    length = len(lists[0].children)
    if any(len(arg.children) != length for arg in lists):
        return None
    op = _element_op(op_schema.op)
    if op is None:
        return None
    known: dict[tuple[tuple[tuple[DTensorSpec, ...], ...], Any], OpStrategy | None] = {}
    children: list[OpStrategy] = []
    for index in range(length):
        element = _element(op, op_schema, index)
        specs = tensor_specs(element)
        if output_meta is not None:
            meta = output_meta[index]
        else:
            # The list form returns nothing. What its element returns is what it writes to, and
            # without metadata it would count as no tensor and could be placed anywhere.
            meta = specs[0][0].tensor_meta if facts(op).tensor_outputs == 1 else None
        key = (specs, meta)
        if key not in known:
            known[key] = decide(element, meta)
        decided = known[key]
        if decided is None:
            return None
        children.append(decided)
    return TupleStrategy(children)


def _element_op(op: OpOverload) -> OpOverload | None:
    """Find the op that does to one element what a foreach op does to each.

    For one that writes to its elements it must write too: the functional form, by which torch
    decides, lets an element be moved, and the write to it is lost. Where there is no such op,
    None: torch knows a foreach op that writes by its name.
    """
    element = element_of(op)
    if element is None:
        return op
    if facts(op).mutates:
        packet, _, overload = str(element).rpartition(".")
        return find_op(f"{packet}_.{overload}")
    return element


def _element(op: OpOverload, op_schema: OpSchema, index: int) -> OpSchema:
    args = tuple(
        arg.children[index] if isinstance(arg, TupleStrategy) else arg
        for arg in op_schema.args_schema
    )
    return OpSchema(op, args, op_schema.kwargs_schema)
