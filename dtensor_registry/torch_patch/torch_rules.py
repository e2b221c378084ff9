"""torch's own rules, asked as a plugin's rule is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import TensorMeta

from dtensor_registry.rules import Rule, is_tensor, tensor_inputs
from dtensor_registry.rules.metadata import fill
from dtensor_registry.torch_patch.catalog import SINGLE_DIM
from dtensor_registry.torch_patch.table_patcher import LEDGER
from dtensor_registry.torch_runtime.conversion import row_from_rule
from dtensor_registry.torch_runtime.foreach import element_of

_PER_ELEMENT = ("aten._foreach_", "aten._amp_foreach_", "aten._fused_")


def as_plugin_rule(op: OpOverload, func: Any) -> Rule:
    """Wrap one of torch's rules: metadata of torch's own class go in, our placements come out.

    A rule for lists is asked for one element of each, as torch asks it.
    """
    element = element_of(op) or op
    per_element = str(op).startswith(_PER_ELEMENT)
    returns = len(op._schema.returns)
    in_place = op._schema.name.endswith("_") and op._schema.is_mutable

    def rule(_: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        args = tuple(_as_torch(value, per_element) for value in args)
        kwargs = {name: _as_torch(value, per_element) for name, value in kwargs.items()}
        rows: list[Any] = [list(row_from_rule(row)) for row in func(element, args, kwargs)]
        if per_element and not returns and element is not op:
            # The list form writes and returns nothing; torch drops rows that would move an element.
            return [row[1:] for row in rows if row[0] == row[1]]
        if in_place and not per_element:  # torch asks in-place ops too, and then drops these
            return [row for row in rows if row[0] == row[1]]
        return rows

    rule.__qualname__ = getattr(func, "__qualname__", str(func))
    rule.__module__ = getattr(func, "__module__", "torch")
    return rule


def torch_rows(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[list[Any]] | None:
    """Ask torch's own single-dim rule for an op, whatever the host has put in its place.

    Args:
        op: the op.
        args: positional arguments, with plain tensors or what stands for them.
        kwargs: keyword arguments.

    Returns:
        The rows, as our placements; None if torch has no such rule for the op.

    >>> from dtensor_registry.placements import show_placements
    >>> x = torch.ones(4)
    >>> [show_placements(row) for row in torch_rows(torch.ops.aten.relu.default, (x,), {}) or ()]
    ['S?(0), S?(0)', 'P(max), P(max)', 'P(min), P(min)']
    """
    info = LEDGER.original(SINGLE_DIM, op)
    if info is None:
        return None
    metas = [TensorMeta(t.shape, t.stride(), t.dtype) for t in tensor_inputs(args, kwargs)]
    return [list(row) for row in as_plugin_rule(op, info.func)(op, *fill(args, kwargs, metas))]


def _as_torch(value: Any, per_element: bool) -> Any:
    if is_tensor(value):
        return TensorMeta(torch.Size(value.shape), tuple(value.stride), value.dtype)
    if isinstance(value, (list, tuple)):
        items = [_as_torch(entry, per_element) for entry in value]
        if per_element and len(items) == 1 and is_tensor(items[0]):
            return items[0]
        return tuple(items) if any(map(is_tensor, items)) else value
    return value
