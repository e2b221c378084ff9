"""An op's schema, in the words of the rules."""

from __future__ import annotations

from functools import cache

from torch._ops import OpOverload

from dtensor_registry._torch.schema import facts
from dtensor_registry.rules.signature import Parameter, Signature


@cache
def signature(op: OpOverload) -> Signature:
    """Read what a template may want to know of an op.

    >>> import torch
    >>> print(signature(torch.ops.aten.sum.dim_IntList))
    aten.sum.dim_IntList(Tensor self, dim, keepdim=False, *, dtype=None)
    """
    known = facts(op)
    outputs = [alias for is_tensor, alias in known.outputs if is_tensor]
    return Signature(
        str(op),
        tuple(
            Parameter(
                name=argument.name,
                is_tensor=argument.tensor,
                is_keyword=argument.keyword,
                output=next((i for i, a in enumerate(outputs) if a & argument.alias), None)
                if argument.keyword and argument.mutated
                else None,
                is_required=not declared.has_default_value(),
                default=declared.default_value,
            )
            for argument, declared in zip(known.arguments, op._schema.arguments, strict=True)
        ),
        known.tensor_outputs,
    )
