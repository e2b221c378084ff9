"""ATen ops that torch has neither a sharding rule nor a decomposition for."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._decompositions import DecompShardingStrategy

from dtensor_registry.torch_runtime.ops import overloads

GROUPS = ("functional", "in-place", "out=", "view")

# Kernels of these keys run on plain CPU tensors.
_ON_CPU = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def ruleless_ops() -> Iterator[tuple[str, OpOverload]]:
    """List the ops that take a tensor, each with its group, by name."""
    dispatcher = DTensor._op_dispatcher
    propagator = dispatcher.sharding_propagator
    ruled = {
        *propagator.op_single_dim_strategy_funcs,
        *propagator.op_strategy_funcs,
        *propagator.op_to_rules,
        *dispatcher._custom_op_handlers,
    }
    for op in sorted(overloads("aten"), key=str):
        composite = has_kernel(op, "CompositeImplicitAutograd")
        if op in ruled or composite or DecompShardingStrategy.has_decomp(op):
            continue
        if any("Tensor" in str(argument.type) for argument in op._schema.arguments):
            yield group(op), op


def group(op: OpOverload) -> str:
    """Say what kind of op it is by its schema."""
    schema = op._schema
    if any(argument.is_out for argument in schema.arguments):
        return "out="
    if any(a.alias_info and a.alias_info.is_write for a in schema.arguments):
        return "in-place"
    return "view" if any(returned.alias_info for returned in schema.returns) else "functional"


def runs_on_cpu(op: OpOverload) -> bool:
    """Say whether torch has a kernel for plain CPU tensors."""
    return any(has_kernel(op, key) for key in _ON_CPU)


def has_kernel(op: OpOverload, key: str) -> bool:
    """Say whether an op has a kernel of its own for a dispatch key."""
    registered: bool = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
    return registered
