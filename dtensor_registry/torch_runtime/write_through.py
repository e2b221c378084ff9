"""Writes into views of moved inputs, brought to the tensors that they are views of."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.utils._pytree import tree_leaves

from dtensor_registry.errors import MovedViewError
from dtensor_registry.torch_runtime.moved_views import (
    ViewMove,
    is_marked,
    marked,
    move_behind,
    plain_spec,
    version_of,
)
from dtensor_registry.torch_runtime.schema import facts


def written_views(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[DTensor]:
    """List the views of moved inputs that a call writes to."""
    values = [v for p, v in facts(op).signature.named(args, kwargs) if p.is_written]
    return [tensor for tensor in tree_leaves(values) if is_marked(tensor)]


def write_through(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], views: list[DTensor]
) -> Any:
    """Run an op that writes to views of moved inputs, and bring to the inputs what it wrote.

    All ranks do the same, whether the write touches their part or not.

    Args:
        op: the op.
        args: its positional arguments.
        kwargs: its keyword arguments.
        views: `written_views(op, args, kwargs)`.

    Returns:
        What the op returns.

    Raises:
        MovedViewError: if a written value has no place in what was moved.
    """
    moves = [move_behind(view._local_tensor) for view in views]
    for view, move in zip(views, moves, strict=True):
        if move is not None:
            _refuse_pending(op, move)
            if move.version is None or move.version != version_of(view):
                _refresh(move, view._local_tensor)
    for view in views:
        view._spec = plain_spec(view._spec)
    try:
        result = op(*args, **kwargs)
    finally:
        # Without a move the view is one of nothing: a rank outside the mesh, compiled code.
        for view, move in zip(views, moves, strict=True):
            if move is not None:
                view._spec = marked(view._spec)
    written: list[torch.Tensor] = []
    for view, move in zip(views, moves, strict=True):
        if move is not None:
            _bring_back(move, view._local_tensor, any(move.source is other for other in written))
            written.append(move.source)
            before = version_of(view)
            # torch counts a write when it has returned.
            move.version = None if before is None else before + 1
    return result


def _refresh(move: ViewMove, view: torch.Tensor) -> None:
    """Make the copy equal to its source, which may have been written to since."""
    if move.parent is not None:
        _refresh(move.parent, move.source)
    copied = redistribute_local_tensor(move.source, move.source_spec, move.copy_spec)
    move.copy_behind(view).copy_(copied)


def _bring_back(move: ViewMove, view: torch.Tensor, overtaken: bool) -> None:
    """Write the copy to its source.

    Args:
        move: how the copy came about.
        view: the local view that was written to.
        overtaken: whether the same call has changed the source through another copy; then only
            what the view covers is new in this one.
    """
    if overtaken:
        news = view.clone()
        _refresh(move, view)
        view.copy_(news)
    copied = move.copy_behind(view)
    move.source.copy_(redistribute_local_tensor(copied, move.copy_spec, move.source_spec))
    if move.parent is not None:
        _bring_back(move.parent, move.source, overtaken=False)


def _refuse_pending(op: OpOverload, move: ViewMove) -> None:
    """Refuse a write to what torch cannot make a pending reduction of."""
    for placement, copied in zip(
        move.source_spec.placements, move.copy_spec.placements, strict=True
    ):
        if placement != copied and not _takes_values(placement, move.source.dtype):
            raise MovedViewError(
                str(op),
                str(move.op),
                _show(move.source_spec),
                _show(move.copy_spec),
            )
    if move.parent is not None:
        _refuse_pending(op, move.parent)


def _takes_values(placement: Any, dtype: torch.dtype) -> bool:
    """Say whether a whole value can be given to a placement, and comes back as it was."""
    if not placement.is_partial():
        return True
    if placement.reduce_op == "sum":
        return dtype.is_floating_point or dtype.is_complex  # torch divides it among the ranks
    return placement.reduce_op in ("avg", "min", "max")


def _show(spec: DTensorSpec) -> str:
    return f"{tuple(spec.shape)}@({', '.join(map(str, spec.placements))})"
