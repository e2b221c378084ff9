"""From what is asked for to a call on DTensors without data."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dtensor_registry.errors import AskedError
from dtensor_registry.explanation import AskedTensor, is_tensor_text, parse_argument
from dtensor_registry.placements import REPLICATE
from dtensor_registry.planner import mixed_partial
from dtensor_registry.rules.strategy import op_name
from dtensor_registry.torch_fake.call import FakeCall, FakeTensors, bound
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_runtime.decomposition import is_composite
from dtensor_registry.torch_runtime.explain_command import DTYPES
from dtensor_registry.torch_runtime.ops import Op
from dtensor_registry.torch_runtime.schema import facts

_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


def find_overload(op: Any) -> Op:
    """Find the overload that is meant: by name, or by a packet that leaves no choice.

    Raises:
        AskedError: if there is none, or several.
    """
    name = op_name(op)
    found = TorchCatalog().overloads(name)
    if len(found) > 1:
        found = tuple(op for op in found if any(p.is_tensor for p in facts(op).parameters))
    if len(found) > 1:
        found = tuple(op for op in found if str(op) == f"{name}.default") or found
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        raise AskedError(f"{name} has {len(found)} overloads; which one is meant?\n  {listed}")
    if not found:
        raise AskedError(_no_such(name))
    (overload,) = found
    try:
        is_composite(overload)
    except RuntimeError as error:  # an operator of TorchScript's interpreter, not of tensors
        raise AskedError(
            f"{overload} is never dispatched, so DTensor does not see it: it belongs to TorchScript"
        ) from error
    return overload


def _no_such(name: str) -> str:
    namespace, _, rest = name.partition(".")
    known = dir(getattr(torch.ops, namespace)) if namespace in ("aten", "prims") else []
    close = difflib.get_close_matches(rest.partition(".")[0], known, n=3)
    hint = f"\n  Did you mean {' or '.join(f'{namespace}.{c}' for c in close)}?" if close else ""
    return (
        f"there is no op {name}{hint}\n"
        "  An op of a library exists once that is imported:  --import MODULE"
    )


def told_by(error: BaseException) -> str:
    """Say what an error says, without the frames of C++ that torch may append."""
    return str(error).partition("\nException raised from ")[0] or type(error).__name__


def values_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Read arguments in which tensors may be written as text.

    Raises:
        NotationError: for a text that begins as a tensor and does not go on as one.
    """

    def value_of(value: Any) -> Any:
        if isinstance(value, str) and is_tensor_text(value):
            return parse_argument(value)[1]
        if isinstance(value, (list, tuple)):
            return [value_of(item) for item in value]
        return value

    return [value_of(v) for v in args], {k: value_of(v) for k, v in kwargs.items()}


def build_call(
    op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], mesh: DeviceMesh
) -> FakeCall:
    """Make the call; tensors of the user are only looked at.

    Args:
        op: the overload.
        args: `AskedTensor`, DTensors, lists of them, and other values.
        kwargs: likewise, by name.
        mesh: where tensors are that do not say so themselves.

    Raises:
        AskedError: if a tensor cannot be made, or the op does not take these arguments.
    """
    tensors = FakeTensors()
    count = 0

    def made(value: Any) -> Any:
        nonlocal count
        if isinstance(value, (list, tuple)):
            return type(value)(map(made, value))
        count += isinstance(value, (AskedTensor, DTensor))
        if isinstance(value, AskedTensor):
            return _tensor(value, mesh, tensors)
        if isinstance(value, DTensor):
            return tensors.like(value)
        if isinstance(value, str) and value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."), value)
        return value

    positional, named = bound(op, args, kwargs)
    call_args = tuple(map(made, positional))
    call_kwargs = {name: made(value) for name, value in named.items()}
    if not count:
        raise AskedError(f"{op}: no tensor is among the arguments; write one:  f32[8,4]@S(0)")
    call = FakeCall(op, call_args, call_kwargs, mesh, tensors)
    error = call.error_on_whole_tensors()
    if error is not None:
        raise AskedError(
            f"{op} does not take these arguments, sharded or not: {told_by(error)}"
        ) from error
    return call


def _tensor(asked: AskedTensor, mesh: DeviceMesh, tensors: FakeTensors) -> DTensor:
    placements = asked.placements or (REPLICATE,) * mesh.ndim
    if len(placements) != mesh.ndim:
        raise AskedError(
            f"{asked} has {len(placements)} placements, mesh {tuple(mesh.shape)} has {mesh.ndim}"
            " dims; give one for each, outermost first"
        )
    if mixed_partial(placements):
        raise AskedError(f"{asked} mixes kinds of partial, which no DTensor may")
    dtype = _BY_NAME.get(asked.dtype) or getattr(torch, asked.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise AskedError(f"{asked}: there is no dtype {asked.dtype}; {', '.join(_BY_NAME)}")
    return tensors.tensor(asked.shape, dtype, placements, mesh)
