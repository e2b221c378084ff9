"""`explain()`: why a call is sharded as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dtensor_registry.errors import AskedError, ConflictingStrategiesError
from dtensor_registry.explanation import Explanation
from dtensor_registry.explanation.describe import Wanted, explain_call, explain_op
from dtensor_registry.explanation.query import build_call, find_overload, values_of
from dtensor_registry.installation.installer import Installation, in_force, install_for_a_moment
from dtensor_registry.mesh_sizes import parse_mesh
from dtensor_registry.settings import read_settings
from dtensor_registry.torch_fake.dispatch import look, made_up_mesh

Mesh = str | int | Sequence[int] | DeviceMesh
"""A mesh as asked for: as text, its size, its sizes, or one that exists."""


def explain(
    op: Any,
    *inputs: Any,
    mesh: Mesh | None = None,
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
        mesh: `"2x4"`, `"dp=2,tp=4"`, 8 or `(2, 4)`, for which ranks are made up; or a mesh
            that exists; not needed for DTensors.
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
    mesh: Mesh | None,
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
        installation, conflict = _installation(known, stack)
        overload = find_overload(op)
        if conflict is not None and conflict.op == str(overload):
            raise conflict
        if inputs or kwargs:
            values, named = values_of(inputs, kwargs)
            on = _mesh(str(overload), mesh, _flat(values, named), stack)
            call = build_call(overload, values, named, on)
            explanation = look(lambda: explain_call(call, installation, told))
        elif told.questions:
            raise AskedError(
                f"{overload}: a choice is asked about, but for which call?  Give its arguments:"
                " f32[8,4]@S(0) ..."
            )
        else:
            explanation = explain_op(overload, installation)
        if conflict is None:
            return explanation
        note = (
            f"install() fails, since {' and '.join(conflict.plugins)} are in conflict over"
            f" {conflict.op}; this is as on_conflict = 'skip' has it"
        )
        return replace(explanation, notes=(note, *explanation.notes))


def _installation(
    known: Installation | None, stack: ExitStack
) -> tuple[Installation, ConflictingStrategiesError | None]:
    """Find or make the installation; after a conflict, one without the ops in conflict."""
    found = known or in_force()
    if found is not None:
        return found, None
    try:
        return stack.enter_context(install_for_a_moment(read_settings())), None
    except ConflictingStrategiesError as conflict:
        lenient = read_settings(on_conflict="skip")
        return stack.enter_context(install_for_a_moment(lenient)), conflict


def _mesh(op: str, asked: Mesh | None, values: Sequence[Any], stack: ExitStack) -> DeviceMesh:
    """Find the mesh, or make it up until the stack is left."""
    if asked is None:
        asked = next((value.device_mesh for value in values if isinstance(value, DTensor)), None)
    if asked is None:
        raise AskedError(f"{op}: on which mesh?  explain(op, ..., mesh='2x4') or  --mesh 2x4")
    if isinstance(asked, DeviceMesh):
        return asked
    if not isinstance(asked, (str, int, Sequence)):
        raise AskedError(f"{op}: {asked!r} is no mesh; write one:  mesh='2x4'")
    if not isinstance(asked, str):
        asked = "x".join(map(str, [asked] if isinstance(asked, int) else asked))
    return stack.enter_context(made_up_mesh(parse_mesh(asked)))


def _flat(values: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    flat: list[Any] = []
    for value in (*values, *named.values()):
        flat += value if isinstance(value, (list, tuple)) else [value]
    return flat
