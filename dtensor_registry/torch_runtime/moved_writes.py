"""Writes to an argument that a decision of torch's moves: they are brought to where it belongs.

torch writes to the moved copy, and the program's tensor stays as it was: batch norm of a tensor
that is cut by channels moves running statistics that every rank has whole.
"""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.decision import Specs, specs_in
from dtensor_registry.torch_runtime.execute import Plan, run_planned
from dtensor_registry.torch_runtime.schema import facts, input_names

UNDECLARED_WRITES = {
    f"aten::{maker}_batch_norm": ("running_mean", "running_var")
    for maker in ("native", "cudnn", "miopen")
}
"""Arguments that ops write to in training, and whose schemas do not say so."""


def moves_what_is_written(op: OpOverload, specs: Specs, answer: Any) -> bool:
    """Say whether a decision of torch's moves an argument that the op writes to.

    Args:
        op: the op.
        specs: the tensors of the call, as they are placed.
        answer: what torch says of the call; a result of the op is no decision.
    """
    if not isinstance(answer, OutputSharding) or not answer.needs_redistribute:
        return False
    # Where torch makes sizes those of a piece, the op's arguments are more than its tensors.
    if answer.use_val_from_redistribute_schema or answer.redistribute_schema is None:
        return False
    if not facts(op).mutates and op._schema.name not in UNDECLARED_WRITES:
        return False
    wanted = specs_in(answer.redistribute_schema)
    written = _written(answer.redistribute_schema)
    return any(specs[at].placements != wanted[at].placements for at in written)


def run_decided(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], answer: OutputSharding
) -> Any:
    """Run an op as torch decided, and write what it wrote to each tensor as that is placed."""
    assert answer.redistribute_schema is not None
    plan = Plan(specs_in(answer.redistribute_schema), answer.output_spec)
    call = read_arguments(op, args, kwargs, None)
    return run_planned(call, plan, written=_written(answer.redistribute_schema))


def _written(schema: OpSchema) -> list[int]:
    """List the tensors that a call writes to, by their places in a row."""
    arguments = (schema.args_schema, schema.kwargs_schema)
    named = facts(schema.op).signature.named(*arguments)
    if any(parameter.name == "training" and value is False for parameter, value in named):
        return []  # a batch norm writes in training only
    undeclared = UNDECLARED_WRITES.get(schema.op._schema.name, ())
    declared = input_names(schema.op, *arguments, lambda value: isinstance(value, DTensorSpec))
    return [
        at
        for at, (name, argument) in enumerate(declared)
        if argument.is_written or name in undeclared
    ]
