"""The all-Replicate strategy as a function for the whole mesh."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy

from dtensor_registry.errors import FallbackRefusedError
from dtensor_registry.placements import REPLICATE
from dtensor_registry.torch_patch.fallback import refusal
from dtensor_registry.torch_runtime.call import tensor_specs
from dtensor_registry.torch_runtime.move_prices import pricer
from dtensor_registry.torch_runtime.schema import facts


def replicate_op_strategy(op_schema: OpSchema) -> OpStrategy:
    """Gather every input and run the op on whole tensors, on every rank.

    It has the signature of torch's own strategy functions, so that it can stand in an
    `OpStrategyPack`.

    Args:
        op_schema: the call, its tensors given as strategies.

    Raises:
        FallbackRefusedError: for an op that gathering cannot run right.
    """
    op = op_schema.op
    inputs = tensor_specs(op_schema)
    known = facts(op)
    moved = [spec for sources in inputs for spec in sources if not spec.is_replicated()]
    reason = refusal(op, moved)
    if known.mutates:
        reason = f"it writes to {', '.join(known.mutates)}, and torch would write to a moved copy"
    if known.list_output:
        reason = "it returns a list of tensors, of a length that a strategy function cannot know"
    if reason is not None:
        raise FallbackRefusedError(str(op), [("replicate_op_strategy", reason)])
    mesh = inputs[0][0].mesh
    price = pricer(mesh, inputs)
    everywhere = (Replicate(),) * mesh.ndim
    outputs: list[Any] = [
        DTensorSpec(mesh, everywhere) if tensor else None for tensor, _ in known.outputs
    ]
    return OpStrategy(
        [
            OpSpec(
                tuple(outputs) if len(outputs) > 1 else next(iter(outputs), None),
                [
                    DTensorSpec(mesh, everywhere, tensor_meta=sources[0].tensor_meta)
                    for sources in inputs
                ],
                [list(price(at, (REPLICATE,) * mesh.ndim)) for at in range(len(inputs))],
            )
        ]
    )
