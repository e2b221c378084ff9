"""Check what really happens: an op on DTensors, by the choice that the expansion makes.

`check` judges rows one by one; here the whole machine runs, as it does in a program: torch's
dispatch, the expansion over all mesh dims, redistribution, the local op, and autograd. Only
the ranks are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from dtensor_registry.rules import Rule
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry_kit.dispatching.compare_call import Wanted, chosen, compare_call, wanted_of
from dtensor_registry_kit.dispatching.input_placements import (
    InputPlacements,
    input_rows,
    list_input_placements,
    read_input_placements,
    show_input_placements,
)
from dtensor_registry_kit.isolation import Note, silent
from dtensor_registry_kit.judging.findings import Finding, Kind, Report
from dtensor_registry_kit.judging.reproducer import drawn_again, written_call
from dtensor_registry_kit.samples.sample import Sample, sample_of
from dtensor_registry_kit.simulation.mesh import plainly, simulated_mesh
from dtensor_registry_kit.simulation.reference_run import (
    alike_memory,
    is_deterministic,
    run_reference,
)
from dtensor_registry_kit.torch_private import OpOverload

MESHES: tuple[tuple[int, ...], ...] = ((2,), (4,), (2, 2))
"""Meshes on which a call is tried."""


@alike_memory()
def check_installed(
    op: OpOverload,
    samples: Iterable[Any],
    mesh_shapes: Sequence[tuple[int, ...]] = MESHES,
    *,
    rule: Rule | None = None,
    inputs: str | None = None,
    draws: int = 3,
    seed: int = 0,
    note: Note = silent,
) -> Report:
    """Run an op on DTensors of all kinds of placements, and compare with the run on whole tensors.

    Whatever is in force decides: an installation, this process's own rules, or torch alone.
    A call that is refused with a reason is no fault.

    Args:
        op: the overload.
        samples: calls `(args, kwargs)` with plain tensors.
        mesh_shapes: meshes to run on; their ranks are simulated.
        rule: inputs also come as the rows of this rule say, so that each row gets its turn, on
            the first of the meshes.
        inputs: how the inputs come, and no other way: `"S(0), R; R, R"` for two tensors on a mesh
            of two dims.
        draws: how many drawn placements of the inputs to try for each call and mesh.
        seed: of what is drawn.
        note: is called with what is about to be tried.

    Returns:
        A report whose errors are of kind `dispatch`; `sound` lists the placements that were right.

    Raises:
        InstallError: if this process is part of a process group.
        TypeError: if a sample is no pair of arguments and keyword arguments.

    >>> import torch
    >>> x = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    >>> check_installed(torch.ops.aten.mul.Tensor, [((x, x), {})], [(2,)]).is_trusted
    True
    """
    reason = "no sample runs"
    calls = []
    for sample in map(sample_of, samples):
        wanted = _wanted(op, sample, seed)
        if isinstance(wanted, str):
            reason = wanted
        else:
            rows = input_rows(rule, op, sample) if rule is not None else []
            calls.append((sample, wanted, rows))
    found: dict[str, Finding] = {}
    right: dict[str, None] = {}
    tried = refused = 0
    for shape in mesh_shapes:
        ranks = "x".join(map(str, shape))
        with simulated_mesh(*shape) as mesh:
            for sample, wanted, rows in calls:
                for input_placements in (
                    list_input_placements(
                        wanted.whole, rows, shape, draws, seed, alone=shape == mesh_shapes[0]
                    )
                    if inputs is None
                    else [read_input_placements(inputs)]
                ):
                    about = f"inputs {show_input_placements(input_placements)} on {ranks} ranks"
                    note(f"through DTensor, {about}: {sample}")
                    seen = compare_call(wanted, input_placements, mesh, seed)
                    tried += 1
                    if seen.outcome == "right":
                        right[about] = None
                    elif seen.outcome == "refused":
                        refused, reason = refused + 1, seen.message
                    elif _gist(seen.message) not in found:
                        is_crash = seen.outcome == "crash on empty"
                        kind: Kind = "crash on empty" if is_crash else "dispatch"
                        choice = chosen(wanted.whole, input_placements, mesh, seed)
                        message = f"{seen.message}; it chose {choice}"
                        again = _program(op, sample, input_placements, mesh, seed)
                        found[_gist(seen.message)] = Finding(
                            kind, message, about, str(sample), again
                        )
    if tried == refused:
        found["untested"] = Finding("untested", f"nothing ran through DTensor: {reason}")
    return Report(
        str(op),
        LOAN.owner(op).name,
        "as installed",
        tuple(found.values()),
        tuple(right),
        len(calls),
        tried,
    )


def _wanted(op: OpOverload, sample: Sample, seed: int) -> Wanted | str:
    """Make a call on whole tensors, or say why there is nothing to compare with."""
    try:
        whole = run_reference(op, sample.args, sample.kwargs)
    except Exception:
        return "no sample runs"  # that an op refuses a sample is told by `check`
    if not whole.inputs:
        return "no sample has a tensor among its arguments"
    if not is_deterministic(whole):
        return "each run of a sample gives another result"
    return wanted_of(whole, seed)


def _program(
    op: OpOverload, sample: Sample, input_placements: InputPlacements, mesh: DeviceMesh, seed: int
) -> str:
    """Write a program that makes a call on DTensors again, with numbers drawn if they show it."""
    with plainly():
        drawn = _wanted(op, drawn_again(sample), seed)
    is_drawn = not isinstance(drawn, str) and (
        compare_call(drawn, input_placements, mesh, seed).outcome != "right"
    )
    with plainly():
        lines, called = written_call(op, sample, is_drawn)
    name, _, call = called.partition(", ")
    also = ["from dtensor_registry_kit import draw"] * is_drawn
    more = f", seed={seed}" if seed else ""
    again = (
        f"print(check_installed({name}, [({call})], [{tuple(mesh.shape)}],"
        f" inputs={show_input_placements(input_placements)!r}{more}))"
    )
    by = _installing(op)
    return "\n".join(
        [
            "import torch",
            *(["import dtensor_registry as dr"] if by else []),
            "from dtensor_registry_kit import check_installed",
            *also,
            *lines,
            *([f"with {by}:", f"    {again}"] if by else [again]),
        ]
    )


def _installing(op: OpOverload) -> str:
    """Write what has an op decided as it is now; empty where torch decides."""
    decider = LOAN.owner(op).name
    if decider in ("torch", "handler", "decomposition"):
        return ""
    if decider in ("local", "context") or decider.startswith("fallback "):
        return "dr.install()"  # and what this process has beside it
    return f"dr.install(pins={{{str(op)!r}: {decider!r}}})"


def _gist(message: str) -> str:
    """What makes two faults one: what differs, but not where and by how much."""
    return message.split(" at [")[0][:60]
