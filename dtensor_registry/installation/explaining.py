"""`explain()`: why a call is sharded as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dtensor_registry._torch.explaining.asked_call import build_call, find_overload, values_of
from dtensor_registry._torch.explaining.explain import Wanted, explain_call, explain_op
from dtensor_registry._torch.explaining.stage import made_up_mesh, undisturbed
from dtensor_registry.errors import AskedError
from dtensor_registry.explanation import Explanation, parse_mesh
from dtensor_registry.installation.plugins import Installation, in_force, install


def explain(
    op: Any,
    *inputs: Any,
    mesh: str | DeviceMesh | None = None,
    most: int | None = 10,
    why_not: str | Sequence[str] = (),
    **kwargs: Any,
) -> Explanation:
    """Say why a call is sharded as it is: who decides, what else there was, what is moved.

    The call is dispatched on tensors without data, as DTensor dispatches it now. If nothing is
    installed, `install()` is in force meanwhile. Nothing is allocated or sent, and nothing is
    left behind.

    Args:
        op: an overload, a packet that leaves no choice, a custom op, or a name.
        inputs: arguments: DTensors, or tensors as text (`"f32[4096,1024]@S(0),R"`, in a list
            for `Tensor[]`), and other values as they are. None: only who has rules is told.
        mesh: `"2x4"` or `"dp=2,tp=4"`, for which ranks are made up; or a mesh that exists;
            not needed for DTensors.
        most: how many candidates and rejected combinations to list; None: all.
        why_not: choices to ask about, such as `"S(1),R -> S(0),R"`: inputs, then outputs,
            tensors apart by `;`.
        kwargs: arguments by name.

    Raises:
        AskedError: if what is asked for makes no call.
        NotationError: if a text is not in its notation.
        InstallError: inside a dispatch; or if ranks would have to be made up in a process
            that is in a process group.
    """
    return explain_arguments(op, inputs, kwargs, mesh, wanted(most, why_not))


def wanted(most: int | None, why_not: str | Sequence[str]) -> Wanted:
    """Put together how much is to be told."""
    return Wanted(most, (why_not,) if isinstance(why_not, str) else tuple(why_not))


def explain_arguments(
    op: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    mesh: str | DeviceMesh | None,
    told: Wanted,
    known: Installation | None = None,
) -> Explanation:
    """Do what `explain` does, for any names of keyword arguments.

    Args:
        op: as for `explain`.
        inputs: likewise.
        kwargs: arguments by name.
        mesh: as for `explain`.
        told: how much is to be told.
        known: the installation that is in force; None finds or makes it.
    """
    with ExitStack() as stack:
        installation = known or in_force() or stack.enter_context(install())
        stack.enter_context(undisturbed())
        overload = find_overload(op)
        if not inputs and not kwargs:
            return explain_op(overload, installation)
        values, named = values_of(inputs, kwargs)
        if isinstance(mesh, str):
            mesh = stack.enter_context(made_up_mesh(parse_mesh(mesh)))
        if mesh is None:
            mesh = next((v.device_mesh for v in _flat(values, named) if _placed(v)), None)
        if mesh is None:
            raise AskedError(
                f"{overload}: on which mesh?  explain(op, ..., mesh='2x4') or  --mesh 2x4"
            )
        call = build_call(overload, values, named, mesh)
        return explain_call(call, installation, told)


def _flat(values: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    flat: list[Any] = []
    for value in (*values, *named.values()):
        flat += value if isinstance(value, (list, tuple)) else [value]
    return flat


def _placed(value: Any) -> bool:
    return isinstance(value, DTensor)
