"""Filled rows of rules, kept: most decisions differ in placements only, which no rule reads.

A rule is a function of the op's arguments, tensors given as metadata. Asking it, checking its
answer and filling its placeholders is most of what a small decision costs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor._op_schema import OpSchema

from dtensor_registry.placements import Partial
from dtensor_registry.planner import Grouped, Row, TensorInput, fill_rows, grouped_dims, shard_kinds
from dtensor_registry.rules import is_tensor

MAX_KEPT = 4096
"""How many answers are kept; the one that was not asked for longest goes first."""


class Filled(NamedTuple):
    """What a rule answers for a call.

    Attributes:
        rows: filled.
        num_outputs: how many of each row's entries are outputs.
        grouped: the dims that may be cut only between groups.
    """

    rows: tuple[Row, ...]
    num_outputs: int
    grouped: tuple[Grouped, ...]


_kept: OrderedDict[Hashable, Filled] = OrderedDict()


def filled_rows(
    rule: Any,
    op_schema: OpSchema,
    inputs: Sequence[TensorInput],
    tensor_outputs: int,
    masked: Sequence[int],
) -> Filled:
    """Ask a rule for its rows and fill them for a call, or give what it answered before.

    Args:
        rule: what gives the rows; compared by identity.
        op_schema: the call, its tensors given as strategies.
        inputs: the tensors of the call.
        tensor_outputs: how many entries of a row are outputs, where a rule gives no rows.
        masked: outputs that are no tensor in this call.
    """
    args, kwargs = op_schema.args_meta, op_schema.kwargs_meta
    key: Hashable = None
    with suppress(TypeError):  # an argument that cannot be hashed: ask
        key = (rule, op_schema.op, _frozen((args, kwargs)), shard_kinds(inputs), tuple(masked))
    kept = _kept.get(key)
    if kept is not None:
        with suppress(KeyError):  # another thread has changed rules just now
            _kept.move_to_end(key)
        return kept
    rows = rule.rows(op_schema.op, args, kwargs)
    num_outputs = len(rows[0]) - len(inputs) if rows else tensor_outputs
    filled = fill_rows(rows, num_outputs, inputs, masked)
    found = Filled(filled, num_outputs, grouped_dims(rows))
    # A partial with a state of its own belongs to one call: the next must get another.
    alone = any(isinstance(p, Partial) and p.native is not None for row in filled for p in row)
    if key is not None and not alone:
        _kept[key] = found
        with suppress(KeyError):
            if len(_kept) > MAX_KEPT:
                _kept.popitem(last=False)
    return found


def forget_rows() -> None:
    """Ask every rule anew: rules have changed."""
    _kept.clear()


def _frozen(value: Any) -> Hashable:
    """Make a key of arguments; values that are equal but of other types are told apart."""
    if is_tensor(value):
        return (tuple(value.shape), value.stride, value.dtype)
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_frozen, value))
    if isinstance(value, dict):
        return tuple((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, torch.SymInt):
        raise TypeError("unhashable: a size that is a symbol")
    hash(value)
    return (type(value), value)
