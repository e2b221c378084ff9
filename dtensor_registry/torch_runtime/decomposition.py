"""What torch's decomposition of an op allows for a call.

torch takes the cheapest of its choices, also one that moves what the op writes to, whose write is
lost then, or a tensor passed by keyword, which its dispatch never moves, or that averages the means
of uneven pieces. Such choices are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, TupleStrategy
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._pytree import tree_leaves, tree_map

from dtensor_registry.errors import MovedArgumentError
from dtensor_registry.placements import show_choice
from dtensor_registry.planner import Candidate, objection
from dtensor_registry.rules import PlacedTensor
from dtensor_registry.torch_runtime.call import Call, tensor_specs, ties
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry.torch_runtime.explain_command import command_for
from dtensor_registry.torch_runtime.schema import facts, input_names


def is_composite(op: OpOverload) -> bool:
    """Say whether torch takes an op into parts before any tensor subclass sees it."""
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(
            op.name(),  # type: ignore[no-untyped-call]
            torch._C.DispatchKey.CompositeImplicitAutograd,
        )
    )


def decomposition_choices(call: Call, op_schema: OpSchema, output_meta: Any) -> list[Candidate]:
    """List what torch's decomposition allows for a call, cheapest first, ties by what is printed.

    Args:
        call: the call, read for the expansion.
        op_schema: the same, its tensors given as strategies, each with one source.
        output_meta: metadata of the outputs, as torch's propagator keeps it.

    Raises:
        Exception: whatever torch raises where it cannot follow placements through the op.
    """
    strategy = propagator().decomp_strategy
    given = (_with_specs(op_schema), output_meta)
    wanted = len(inspect.signature(type(strategy).propagate_strategy).parameters) - 1  # no self
    # The op's parts run on meta tensors; a mode of fake ones would make others of these.
    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        found = strategy.propagate_strategy(*given[:wanted])
    specs = found.strategies if isinstance(found, OpStrategy) else ()
    choices = [_candidate(spec) for spec in specs]
    return sorted(
        (c for c in choices if objection(call.problem, c.outputs, c.inputs) is None),
        key=lambda c: (c.cost, show_choice(c.outputs, c.inputs)),
    )


def leave_in_place(op_schema: OpSchema, found: OpStrategy) -> OpStrategy:
    """Leave choices out that move an argument which the op writes to, or one passed by keyword.

    Args:
        op_schema: a call, its tensors given as specs.
        found: what torch derived from the op's decomposition.

    Raises:
        MovedArgumentError: if no choice is left.
    """
    op, known = op_schema.op, facts(op_schema.op)
    arguments = (op_schema.args_schema, op_schema.kwargs_schema)
    declared = input_names(op, *arguments, lambda value: isinstance(value, DTensorSpec))
    pinned = {at: a for at, (_, a) in enumerate(declared) if a.is_written or a.is_keyword}
    if not pinned:
        return found
    specs = [value for value in tree_leaves(arguments) if isinstance(value, DTensorSpec)]

    def stays(choice: OpSpec) -> bool:
        inputs, outputs = choice.input_specs or (), _outputs(choice)
        pairs: list[tuple[DTensorSpec | None, DTensorSpec]]
        pairs = [(inputs[at], specs[at]) for at in pinned]
        pairs += [(outputs[output], specs[at]) for output, at in ties(known, declared)]
        return all(is_now is None or is_now.placements == was.placements for is_now, was in pairs)

    kept = [choice for choice in found.strategies if stays(choice)]
    if not kept:
        at = next(iter(pinned))
        placed, is_written = str(specs[at].placements), pinned[at].is_written
        name, explain = declared[at][0], command_for(op_schema)
        raise MovedArgumentError(str(op), name, placed, is_written, explain)
    return OpStrategy(kept)


def leave_out_uneven_means(op_schema: OpSchema, found: OpStrategy) -> OpStrategy:
    """Leave choices out by which each rank takes the mean of a piece, where pieces are uneven.

    torch follows placements through the op's parts on a mesh of one rank, which cuts nothing: that
    a mean of pieces is an average of the ranks' means holds only for pieces of one size.
    """
    mesh = tuple(found.mesh.shape)

    def is_right(choice: OpSpec) -> bool:
        averaged = {
            mesh_dim
            for output in _outputs(choice)
            for mesh_dim, placement in enumerate(output.placements if output else ())
            if placement.is_partial("avg")
        }
        return not any(
            averaged.intersection(tensor.cuts(dim)) and len(tensor.piece_sizes(dim)) > 1
            for tensor in _placed(choice, mesh)
            for dim in range(len(tensor.shape))
        )

    # To replicate all is always a choice, unless an `out=` argument is elsewhere.
    return OpStrategy([choice for choice in found.strategies if is_right(choice)])


def _placed(choice: OpSpec, mesh: tuple[int, ...]) -> Iterator[PlacedTensor]:
    for spec in choice.input_specs or ():
        if spec.tensor_meta is not None:
            placements = placements_from_torch(spec.placements)
            yield PlacedTensor(tuple(spec.shape), spec.tensor_meta.dtype, placements, mesh)


def _outputs(choice: OpSpec) -> Sequence[DTensorSpec | None]:
    given = choice.output_specs
    return given if isinstance(given, Sequence) else (given,)


def _with_specs(op_schema: OpSchema) -> OpSchema:
    """Write a call with the specs of its tensors, as torch's propagator got it."""

    def spec_of(value: Any) -> Any:
        if isinstance(value, OpStrategy):
            return value.strategies[0].output_spec
        if isinstance(value, TupleStrategy):
            return [spec_of(child) for child in value.children]
        return value

    args, kwargs = tree_map(
        spec_of,
        (op_schema.args_schema, op_schema.kwargs_schema),
        is_leaf=lambda value: isinstance(value, (OpStrategy, TupleStrategy)),
    )
    return OpSchema(op_schema.op, args, kwargs, op_schema.schema_info)


def _candidate(spec: OpSpec) -> Candidate:
    """Read one of torch's choices."""
    inputs = tuple(placements_from_torch(each.placements) for each in spec.input_specs or ())
    return Candidate(
        rows=(),
        outputs=tuple(
            None if output is None else placements_from_torch(output.placements)
            for output in _outputs(spec)
        ),
        inputs=inputs,
        costs=tuple(map(tuple, spec.redistribute_cost or [[0.0]] * len(inputs))),
    )


def function_choices(schema: OpSchema) -> tuple[Candidate, ...] | str:
    """List what torch's function for the whole mesh offers for a call, cheapest first.

    Args:
        schema: the call, its tensors given as specs.

    Returns:
        The choices, or why there are none to list.
    """
    function = propagator().op_strategy_funcs.get(schema.op)
    if function is None:
        return "torch's rule for this op gives one answer and lists no others"
    described = propagator()._wrap_with_op_strategy(schema)
    strategy = function(described)
    if not isinstance(strategy, OpStrategy):
        return "torch decides this op element by element and lists no choices"
    tensors = len(tensor_specs(described))
    found = [
        _candidate(spec)
        for spec in strategy.strategies
        if spec.input_specs is not None and len(spec.input_specs) == tensors
    ]
    return tuple(sorted(found, key=lambda candidate: candidate.cost))
