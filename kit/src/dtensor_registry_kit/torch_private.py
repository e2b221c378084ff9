"""All that the kit needs of torch's private API, in one module.

`PRIVATE_NAMES` lists what torch must have; importing this module checks it, as the host checks
its own list before it installs anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode, local_tensor_mode
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from dtensor_registry.errors import UnsupportedTorchError
from dtensor_registry.torch_runtime.compat import read_names
from dtensor_registry.torch_runtime.dispatcher import propagator

__all__ = [
    "PRIVATE_NAMES",
    "DTensorSpec",
    "FakeStore",
    "LocalTensor",
    "LocalTensorMode",
    "OpOverload",
    "TorchDispatchMode",
    "is_composite",
    "local_tensor_mode",
    "outside_of_modes",
    "propagate",
    "sample_database",
    "schema_of",
    "spec_of",
    "takes_local_sizes",
    "tree_leaves",
    "tree_map",
    "values_of_ranks",
]

PRIVATE_NAMES = read_names(
    {
        "torch": ["ops.aten.add_.Tensor: _schema"],
        "torch._C": [
            "_dispatch_has_kernel_for_dispatch_key",
            "DispatchKey: CompositeImplicitAutograd",
            "FunctionSchema: arguments is_mutable name returns",
            "Argument: is_out name type",
        ],
        "torch._ops": ["OpOverload"],
        "torch.distributed._local_tensor": [
            "LocalTensor: _local_tensors",
            "LocalTensorMode: disable",
            "local_tensor_mode",
        ],
        "torch.distributed.tensor": [
            "DTensor._op_dispatcher.sharding_propagator: op_to_schema_info"
            " op_to_schema_info_for_single_dim_strategy op_to_shape_and_stride_idx"
            " propagate_op_sharding",
        ],
        "torch.distributed.tensor._dtensor_spec": [
            "DTensorSpec(mesh, placements, tensor_meta)",
            "TensorMeta(shape, stride, dtype)",
        ],
        "torch.distributed.tensor._op_schema": [
            "OpSchema(op, args_schema, kwargs_schema): _recompute_comparison_key args_spec"
            " schema_info",
            "OutputSharding(output_spec, redistribute_schema, needs_redistribute)",
        ],
        "torch.testing._internal.distributed.fake_pg": ["FakeStore"],
        "torch.utils._python_dispatch": ["TorchDispatchMode", "_disable_current_modes"],
        "torch.utils._pytree": ["tree_leaves(tree, is_leaf)", "tree_map(func, tree)"],
    }
)
"""Every private name that the kit uses; torch's database of samples may be missing."""

_MISSING = [problem for name in PRIVATE_NAMES if (problem := name.problem()) is not None]
if _MISSING:
    raise UnsupportedTorchError(torch.__version__, _MISSING)


def schema_of(op: OpOverload) -> torch._C.FunctionSchema:
    """Return the schema of an op: its name, arguments and returns.

    >>> schema_of(torch.ops.aten.add_.Tensor).is_mutable
    True
    """
    return op._schema


def is_composite(op: Any) -> bool:
    """Say whether an op reaches DTensor as itself in inference mode only, else in its parts."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), composite)


def takes_local_sizes(op: OpOverload) -> bool:
    """Say whether torch gives an op the sizes of a rank's piece in place of the whole tensor's."""
    return op in propagator().op_to_shape_and_stride_idx


def spec_of(tensor: torch.Tensor, placement: Any, mesh: Any) -> DTensorSpec:
    """Describe a tensor that is placed so on a mesh of one dim."""
    meta = TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
    return DTensorSpec(mesh, (placement,), tensor_meta=meta)


def propagate(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[OpSchema, OutputSharding]:
    """Ask the rules that are in force what an op makes of inputs.

    Args:
        op: the op.
        args: positional arguments, with a `DTensorSpec` for each tensor.
        kwargs: keyword arguments, likewise.

    Returns:
        The call as it was asked, and torch's answer.
    """
    schema = OpSchema(op, tuple(args), dict(kwargs))
    found = propagator()
    info = found.op_to_schema_info.get(op)
    schema.schema_info = info or found.op_to_schema_info_for_single_dim_strategy.get(op)
    schema._recompute_comparison_key()
    return schema, found.propagate_op_sharding(schema)


def values_of_ranks(local: LocalTensor) -> list[torch.Tensor]:
    """List what each simulated rank holds of a tensor."""
    return [local._local_tensors[rank] for rank in sorted(local._local_tensors)]


def outside_of_modes() -> AbstractContextManager[Any]:
    """Run what is inside unseen by dispatch modes, such as one that counts collectives."""
    return _disable_current_modes()


def sample_database() -> Any:
    """Import the module in which torch keeps the sample inputs of its own ops (about 4 s).

    Raises:
        ImportError: if what it needs is not installed.
    """
    from torch.testing._internal import common_methods_invocations

    return common_methods_invocations
