"""From what is asked for to a call on DTensors without data."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from dtensor_registry.errors import AskedError
from dtensor_registry.explanation import AskedTensor, is_tensor_text, parse_argument
from dtensor_registry.placements import REPLICATE
from dtensor_registry.planner import mixed_partial
from dtensor_registry.rules.strategy import op_name
from dtensor_registry.torch_fake.dispatch import quiet, without_data
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_runtime.conversion import placements_to_torch
from dtensor_registry.torch_runtime.decomposition import is_composite
from dtensor_registry.torch_runtime.execute import waits_for_shapes
from dtensor_registry.torch_runtime.explain_command import DTYPES
from dtensor_registry.torch_runtime.schema import facts

_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that can be dispatched.

    Attributes:
        op: the overload.
        args: positional arguments, tensors as DTensors without data.
        kwargs: keyword arguments, likewise.
        mesh: of all its tensors.
        mode: that their local tensors belong to.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mesh: DeviceMesh
    mode: FakeTensorMode


def find_overload(op: Any) -> OpOverload:
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
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], mesh: DeviceMesh
) -> AskedCall:
    """Make the call; tensors of the user are only looked at.

    Args:
        op: the overload.
        args: `AskedTensor`, DTensors, lists of them, and other values.
        kwargs: likewise, by name.
        mesh: where tensors are that do not say so themselves.

    Raises:
        AskedError: if a tensor cannot be made, or the op does not take these arguments.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def made(value: Any) -> Any:
        if isinstance(value, AskedTensor):
            return without_data(_spec(value, mesh), mode)
        if isinstance(value, DTensor):
            return without_data(value._spec, mode, value._local_tensor.device)
        if isinstance(value, str) and value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."), value)
        return value

    call_args, call_kwargs = tree_map(made, _bound(op, args, kwargs))
    leaves = tree_leaves((call_args, call_kwargs))
    if not any(isinstance(leaf, DTensor) for leaf in leaves):
        raise AskedError(f"{op}: no tensor is among the arguments; write one:  f32[8,4]@S(0)")
    call = AskedCall(op, call_args, call_kwargs, mesh, mode)
    _try_whole(call)
    return call


def _bound(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put arguments in their positions, as torch's dispatcher does before DTensor sees them.

    What cannot be put there stays as it is, for the op to say so.
    """
    placed, named = list(args), dict(kwargs)
    positional = [argument for argument in op._schema.arguments if not argument.kwarg_only]
    for argument in positional[len(placed) :]:
        if not any(later.name in named for later in positional[len(placed) :]):
            break
        if argument.name in named:
            placed.append(named.pop(argument.name))
        elif argument.has_default_value():
            placed.append(argument.default_value)
        else:
            break
    return tuple(placed), named


def _spec(asked: AskedTensor, mesh: DeviceMesh) -> DTensorSpec:
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
    whole = torch.empty(asked.shape, dtype=dtype, device="meta")
    meta = TensorMeta(whole.shape, whole.stride(), dtype)
    return DTensorSpec(mesh, placements_to_torch(placements), tensor_meta=meta)


def _try_whole(call: AskedCall) -> None:
    """Run the op on whole tensors without data: what it raises there has no bearing on sharding."""

    def whole(tensor: DTensor) -> torch.Tensor:
        meta: Any = tensor._spec.tensor_meta
        return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype)

    # torch would report what the op raises, which is said here.
    with quiet("torch._subclasses.fake_tensor"), call.mode, torch.no_grad():
        args, kwargs = tree_map_only(DTensor, whole, (call.args, call.kwargs))
        try:
            call.op(*args, **kwargs)
        except Exception as error:
            if not waits_for_shapes(error) and not isinstance(error, NotImplementedError):
                raise AskedError(
                    f"{call.op} does not take these arguments, sharded or not: {told_by(error)}"
                ) from error
