"""What torch's decomposition of an op allows for a call that no row of a rule fits."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, TupleStrategy
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._pytree import tree_map

from dtensor_registry.planner import Candidate, objection
from dtensor_registry.planner.problem import show_combination
from dtensor_registry.torch_runtime.call import Call
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.dispatcher import propagator


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

    A choice that moves what the op writes to, or a keyword tensor, is left out: torch would take
    it, and lose the write.

    Args:
        call: the call, read for the expansion.
        op_schema: the same, its tensors given as strategies, each with one source.
        output_meta: metadata of the outputs, as torch's propagator keeps it.

    Raises:
        Exception: whatever torch raises where it cannot follow placements through the op.
    """
    strategy = propagator().decomp_strategy
    given = (_with_specs(op_schema), output_meta)
    wanted = len(inspect.signature(strategy.propagate_strategy).parameters)
    # The op's parts run on meta tensors; a mode of fake ones would make others of these.
    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        found = strategy.propagate_strategy(*given[:wanted])
    specs = found.strategies if isinstance(found, OpStrategy) else ()
    choices = [_candidate(spec) for spec in specs]
    return sorted(
        (c for c in choices if objection(call.problem, c.outputs, c.inputs) is None),
        key=lambda c: (c.cost, show_combination(c.outputs, c.inputs)),
    )


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
    given = spec.output_specs
    outputs: Sequence[Any] = given if isinstance(given, Sequence) else (given,)
    inputs = tuple(placements_from_torch(each.placements) for each in spec.input_specs or ())
    return Candidate(
        rows=(),
        outputs=tuple(None if o is None else placements_from_torch(o.placements) for o in outputs),
        inputs=inputs,
        costs=tuple(map(tuple, spec.redistribute_cost or [[0.0]] * len(inputs))),
    )
