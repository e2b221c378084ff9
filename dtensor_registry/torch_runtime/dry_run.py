"""An op run on pieces without data, to see what one rank would get before any rank runs it.

torch decides from global shapes alone. Two mistakes show only on a rank's own pieces: an
argument that holds a global size, which the local kernel would take for its own, and a
piece without elements, on which some ops raise, on that rank alone, while the other ranks
wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, TupleStrategy
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._pytree import tree_map

from dtensor_registry.errors import RegistryError
from dtensor_registry.placements import Shard, is_shard
from dtensor_registry.planner import Candidate, piece
from dtensor_registry.torch_runtime.call import Call
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry.torch_runtime.local_arguments import LocalArguments, with_local_arguments
from dtensor_registry.torch_runtime.schema import facts, input_names


class RehearsalError(RegistryError, RuntimeError):
    """An op could not be run without data; what it raised is the cause."""

    def __init__(self, op: str, raised: str) -> None:
        self.op = op
        self.raised = raised
        super().__init__(
            f"{op} writes to an argument, and whether it changes its shape cannot be seen"
            f" beforehand: on meta tensors it raised {raised}"
        )


def fails_on_empty(
    call: Call, op_schema: OpSchema, choice: Candidate, local: LocalArguments | None
) -> bool:
    """Say whether a rank would hold nothing on which the op raises.

    The last rank of every mesh dim has the smallest pieces.
    """
    mesh_shape = call.problem.mesh_shape
    last = tuple(ranks - 1 for ranks in mesh_shape)
    shapes = _pieces(call, choice, last)
    if shapes is None or not any(
        0 in shape and 0 not in tensor.shape
        for shape, tensor in zip(shapes, call.problem.inputs, strict=True)
    ):
        return False
    try:
        _run(call, op_schema, shapes, local, _output_pieces(call, choice, last))
    except Exception:  # whatever a kernel raises would be raised by one rank alone
        return True
    return False


def takes_global_sizes(
    call: Call, op_schema: OpSchema, choice: Candidate, local: LocalArguments | None
) -> str | None:
    """Say where an op returns other than the pieces that its output's placements mean, or None.

    Only ops with a list of ints among their arguments are run; torch rewrites the sizes of a
    few of its own.
    """
    if not facts(call.op).sizes or call.op in propagator().op_to_shape_and_stride_idx:
        return None
    if not any(is_shard(p) for placements in choice.outputs for p in placements or ()):
        return None
    mesh_shape = call.problem.mesh_shape
    first = (0,) * len(mesh_shape)
    shapes = _pieces(call, choice, first)
    if shapes is None:
        return None
    names = ", ".join(repr(name) for name in facts(call.op).sizes)
    try:
        results = _run(call, op_schema, shapes, local, _output_pieces(call, choice, first))
    except Exception as error:  # whatever a kernel raises here, each rank would raise
        return (
            f"on its piece of the inputs each rank would raise {type(error).__name__}: {error};"
            f" its argument {names} may be a size of the whole tensor"
        )
    results = results if isinstance(results, (list, tuple)) else [results]
    tensors = [result for result in results if isinstance(result, torch.Tensor)]
    outputs = choice.outputs * (len(call.metas) if call.listed and len(choice.outputs) == 1 else 1)
    present = [(m, p) for m, p in zip(call.metas, outputs, strict=True) if m is not None and p]
    for at, (result, (meta, placements)) in enumerate(zip(tensors, present, strict=True)):
        expected = piece(meta.shape, placements, mesh_shape, first)
        if tuple(result.shape) != expected:
            return (
                f"each rank would return {tuple(result.shape)} for its piece {expected} of output"
                f" {at}, ({', '.join(map(str, placements))}) of {tuple(meta.shape)}; its argument"
                f" {names} is a size of the whole tensor, which the local op takes for its own"
            )
    return None


def _pieces(call: Call, choice: Candidate, at: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Give every input's piece on one rank, or None where pieces are not plain chunks."""
    if any(is_shard(p) and not isinstance(p, Shard) for inputs in choice.inputs for p in inputs):
        return None
    return [
        piece(tensor.shape, placements, call.problem.mesh_shape, at)
        for tensor, placements in zip(call.problem.inputs, choice.inputs, strict=True)
    ]


def resized(call: Call, op_schema: OpSchema) -> str | None:
    """Name an argument whose shape an op changes where it writes to it, or None.

    A DTensor's shape is not the local tensor's to change.

    Raises:
        RehearsalError: if the op cannot be run without data.
    """
    if not facts(call.op).mutates:
        return None
    shapes = [tensor.shape for tensor in call.problem.inputs]
    args, kwargs, made = _without_data(call, op_schema, shapes)
    declared = input_names(call.op, args, kwargs, lambda value: isinstance(value, torch.Tensor))
    try:
        with unset_fake_temporarily(), disable_proxy_modes_tracing():
            call.op(*args, **kwargs)
    except Exception as error:
        raise RehearsalError(str(call.op), f"{type(error).__name__}: {error}") from error
    for (name, argument), tensor, shape in zip(declared, made, shapes, strict=True):
        if argument.is_written and tuple(tensor.shape) != tuple(shape):
            return shape_is_changed(name, shape, tensor.shape)
    return None


def shape_is_changed(name: str, before: Sequence[int], after: Sequence[int]) -> str:
    """Say that an op changes the shape of an argument that it writes to."""
    return f"it changes the shape of its argument {name!r}: {tuple(before)} -> {tuple(after)}"


def _output_pieces(
    call: Call, choice: Candidate, at: tuple[int, ...]
) -> list[tuple[int, ...] | None]:
    """Give every output's piece on one rank; None for one that is no tensor."""
    outputs = choice.outputs * (len(call.metas) if call.listed and len(choice.outputs) == 1 else 1)
    return [
        None if meta is None or not p else piece(meta.shape, p, call.problem.mesh_shape, at)
        for meta, p in zip(call.metas, outputs, strict=True)
    ]


def _run(
    call: Call,
    op_schema: OpSchema,
    shapes: Sequence[tuple[int, ...]],
    local: LocalArguments | None,
    outputs: Sequence[tuple[int, ...] | None],
) -> Any:
    args, kwargs, _ = _without_data(call, op_schema, shapes)
    if local is not None:
        args, kwargs = with_local_arguments(local, call.op, args, kwargs, outputs)
    # Meta tensors, not fake ones: fake mode writes what a kernel raises to torch's log.
    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        return call.op(*args, **kwargs)


def _without_data(
    call: Call, op_schema: OpSchema, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
    """Write the arguments of a call with meta tensors of the given shapes; list these too."""
    given = iter(zip(call.specs, shapes, strict=True))
    made: list[torch.Tensor] = []

    def empty(value: Any) -> Any:
        if isinstance(value, TupleStrategy):
            return [empty(child) for child in value.children]
        if not isinstance(value, OpStrategy):
            return value
        (spec, *_), shape = next(given)
        made.append(torch.empty(shape, dtype=_dtype(spec), device="meta"))
        return made[-1]

    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        args, kwargs = tree_map(
            empty,
            (op_schema.args_schema, op_schema.kwargs_schema),
            is_leaf=lambda value: isinstance(value, (OpStrategy, TupleStrategy)),
        )
    return args, kwargs, made


def _dtype(spec: DTensorSpec) -> torch.dtype:
    meta: Any = spec.tensor_meta
    return meta.dtype  # type: ignore[no-any-return]
