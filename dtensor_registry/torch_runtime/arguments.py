"""The tensors among the arguments of one call on DTensors, in row order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._pytree import tree_leaves, tree_map

from dtensor_registry.errors import MixedMeshesError, MixedTensorsError
from dtensor_registry.rules.signature import Parameter
from dtensor_registry.torch_runtime.dispatcher import dispatcher
from dtensor_registry.torch_runtime.schema import input_names


@dataclass(frozen=True, slots=True)
class Arguments:
    """One call, its tensors listed.

    Attributes:
        args: positional arguments as passed.
        kwargs: keyword arguments as passed.
        tensors: the tensors among them, in row order.
        declared: name and declaration of each.
        specs: mesh, placements and metadata of each; a plain scalar tensor is replicated.
        schema: the call as torch's propagator writes it.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: tuple[torch.Tensor, ...]
    declared: tuple[tuple[str, Parameter], ...]
    specs: tuple[DTensorSpec, ...]
    schema: OpSchema

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh of the call."""
        return self.specs[0].mesh

    @property
    def locals(self) -> list[torch.Tensor]:
        """What this rank holds of each tensor."""
        return [t._local_tensor if isinstance(t, DTensor) else t for t in self.tensors]

    @property
    def symbolic(self) -> bool:
        """Whether a size is a symbol, as under torch.compile with dynamic shapes."""
        return any(isinstance(size, torch.SymInt) for spec in self.specs for size in spec.shape)

    def replaced(self, tensors: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Write the arguments anew with other values in place of the tensors."""
        return _replace(self.args, self.kwargs, tensors)


def read_arguments(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], schema_info: Any
) -> Arguments:
    """List the tensors of a call.

    Raises:
        MixedMeshesError: if the DTensors are on several meshes.
        MixedTensorsError: if a plain tensor of more than one element is among the DTensors.
    """
    tensors = tuple(v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor))
    declared = input_names(op, args, kwargs, lambda v: isinstance(v, torch.Tensor))
    mesh = next(t for t in tensors if isinstance(t, DTensor)).device_mesh
    specs = []
    for tensor, (name, _) in zip(tensors, declared, strict=True):
        if isinstance(tensor, DTensor):
            if tensor.device_mesh != mesh:
                raise MixedMeshesError(str(op), name, str(mesh), str(tensor.device_mesh))
            specs.append(tensor._spec)
            continue
        try:
            specs.append(dispatcher()._try_replicate_spec_for_scalar_tensor(op, tensor, mesh))
        except RuntimeError as error:
            raise MixedTensorsError(str(error), name, tuple(tensor.shape)) from error
    schema = OpSchema(op, *_replace(args, kwargs, specs), schema_info)
    return Arguments(args, kwargs, tensors, declared, tuple(specs), schema)


def _replace(
    args: tuple[Any, ...], kwargs: dict[str, Any], values: Iterable[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    fill = iter(values)
    replaced: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(
        lambda v: next(fill) if isinstance(v, torch.Tensor) else v, (args, kwargs)
    )
    return replaced
