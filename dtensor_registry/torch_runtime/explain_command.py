"""The command line that explains a call, for the end of an error."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, TupleStrategy

from dtensor_registry.mesh_sizes import MeshSizes
from dtensor_registry.placements import show_placements
from dtensor_registry.torch_runtime.conversion import placements_from_torch

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
"""Short names of dtypes; others go by torch's own name."""


def dtype_name(dtype: torch.dtype) -> str:
    """Name a dtype as the notation of explanations does.

    >>> dtype_name(torch.bfloat16), dtype_name(torch.float8_e5m2)
    ('bf16', 'float8_e5m2')
    """
    return DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


def command_for(schema: OpSchema) -> str:
    """Write the command that explains a call.

    Strides are not in it, nor are arguments that have no literal.

    Args:
        schema: the call, its tensors given as specs or as strategies.
    """
    meshes: list[Any] = []

    def text_of(value: Any) -> str:
        if isinstance(value, OpStrategy):
            value = value.strategies[0].output_spec
        if isinstance(value, DTensorSpec):
            meshes.append(value.mesh)
            return _tensor(value)
        if isinstance(value, (TupleStrategy, list, tuple)):
            items: Iterable[Any] = value.children if isinstance(value, TupleStrategy) else value
            return f"[{', '.join(map(text_of, items))}]"
        return repr(value)

    given = [text_of(value) for value in schema.args_schema]
    given += [f"{name}={text_of(value)}" for name, value in schema.kwargs_schema.items()]
    words = ["dtensor-registry", "explain", str(schema.op), *given]
    if meshes:
        mesh = meshes[0]
        words += ["--mesh", str(MeshSizes(tuple(mesh.shape), mesh.mesh_dim_names))]
    return shlex.join(words)


def _tensor(spec: DTensorSpec) -> str:
    meta: Any = spec.tensor_meta
    placements = show_placements(placements_from_torch(spec.placements)).replace(", ", ",")
    return f"{dtype_name(meta.dtype)}[{','.join(map(str, meta.shape))}]@{placements}"
