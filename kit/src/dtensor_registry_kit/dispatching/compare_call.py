"""One call on DTensors, forward and backward, compared with the run on whole tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dtensor_registry.errors import RegistryError, RuleError
from dtensor_registry.placements import REPLICATE, Partial, StridedShard
from dtensor_registry.rules.metadata import fill
from dtensor_registry.torch_patch.watch import OpRun, watching
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry_kit.dispatching.input_placements import InputPlacements
from dtensor_registry_kit.judging.backward import gradients
from dtensor_registry_kit.judging.judge import describe_error
from dtensor_registry_kit.samples.sample import draw
from dtensor_registry_kit.simulation.compare import tolerance_of
from dtensor_registry_kit.simulation.distribute import is_inexact
from dtensor_registry_kit.simulation.mesh import of_pieces, on_every_rank, plainly
from dtensor_registry_kit.simulation.rebuild import rebuild_difference, slot_difference
from dtensor_registry_kit.simulation.reference_run import ReferenceRun, outputs_of
from dtensor_registry_kit.torch_private import is_composite

_REFUSALS = (
    "in-place operations that require placement changes",
    "not supported yet",  # a redistribution, of a pinned argument for example
    "is unsupported",
    "unhashable type",  # a complex number in the cache key
    "min() arg is an empty sequence",  # torch 2.13 has no row for what is given
    "no valid sharding strategy",  # likewise, torch 2.14
)
"""What torch says when it refuses a call that has a rule, or cannot move a tensor so."""


_MOVES = 100.0
"""How much more rounding a call may show than one op does: a partial input that is reduced on the
way is rounded, and a steep function (tan, digamma) makes much of that."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call on whole tensors, and its gradients.

    Attributes:
        whole: the call.
        upstream: a gradient for each output that can have one.
        gradients: what they are for each input; None for a call without gradients.
        relative: tolerance, see `relative_tolerance`.
    """

    whole: ReferenceRun
    upstream: tuple[torch.Tensor | None, ...]
    gradients: tuple[Any, ...] | None
    relative: float


Outcome: TypeAlias = Literal["right", "wrong", "raised", "refused", "crash on empty"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one call.

    Attributes:
        outcome: in one word; `right` also where the forward is right and its backward refused.
        message: what was seen.
        no_backward: why the backward was refused; empty if it was not.
    """

    outcome: Outcome
    message: str = ""
    no_backward: str = ""


class _BackwardRefusedError(Exception):
    """The forward op is right; its backward is another op, without a rule."""


def wanted_of(whole: ReferenceRun, seed: int) -> Wanted:
    """Run a call's backward on whole tensors, if it has one."""
    upstream = tuple(
        draw(value.shape, value.dtype, seed * 100 + 71 + index)
        if isinstance(value, torch.Tensor) and is_inexact(value)
        else None
        for index, value in enumerate(whole.outputs)
    )
    relative = _MOVES * tolerance_of(whole.operands, whole.tensor_outputs)
    pulled = None
    if (
        not whole.mutated
        and not is_composite(whole.op)
        and any(is_inexact(tensor) for tensor in whole.inputs)
    ):
        try:
            pulled = tuple(gradients(whole, whole.inputs, lambda index, _: upstream[index]))
        except (RuntimeError, NotImplementedError):
            pulled = None  # the op has no gradient
    return Wanted(whole, upstream, pulled, relative)


def compare_call(
    wanted: Wanted, input_placements: InputPlacements, mesh: DeviceMesh, seed: int
) -> Seen:
    """Make one call on a simulated mesh, with the inputs placed as `input_placements` says."""
    whole = wanted.whole
    try:
        pieces = _pieces(whole, input_placements, mesh, seed)
    except (NotImplementedError, RuntimeError):
        return Seen("refused", "the inputs cannot be placed like this")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of redistributions that cost something
            message = _compare(wanted, pieces, input_placements, mesh)
    except _BackwardRefusedError as error:
        return Seen("right", no_backward=str(error))
    except Exception as error:
        if is_refusal(error):
            return Seen("refused", describe_error(error))
        lacking = any(
            not piece.numel() and tensor.numel()
            for given, tensor in zip(pieces, whole.inputs, strict=True)
            for piece in given
        )
        return Seen("crash on empty" if lacking else "raised", f"it raises {describe_error(error)}")
    return Seen("right") if message is None else Seen("wrong", message)


def is_refusal(error: Exception) -> bool:
    """Say whether an error names a reason for which a call cannot be made, and is no fault."""
    seen: BaseException | None = error
    while seen is not None:  # torch makes a RuntimeError of what is raised while it decides
        if isinstance(seen, RegistryError):
            return not isinstance(seen, RuleError)
        if isinstance(seen, NotImplementedError):
            return True
        seen = seen.__cause__
    return any(words in str(error) for words in _REFUSALS)


def chosen(
    whole: ReferenceRun, input_placements: InputPlacements, mesh: DeviceMesh, seed: int
) -> str:
    """Make a call once more, to see what the expansion chooses: `outputs <- inputs`."""
    pieces = _pieces(whole, input_placements, mesh, seed)
    ran: list[OpRun] = []
    try:
        with torch.inference_mode(is_composite(whole.op)), torch.no_grad():
            args, kwargs = fill(
                whole.args, whole.kwargs, _placed(whole, pieces, input_placements, mesh)
            )
            with watching(ran.append):
                whole.op(*args, **kwargs)
    except Exception:
        return "nothing that runs"
    choices = dict.fromkeys(run.choice for run in ran if run.op == str(whole.op))
    return " | ".join(islice(choices, 3)) or "nothing"


def _pieces(
    whole: ReferenceRun, input_placements: InputPlacements, mesh: DeviceMesh, seed: int
) -> list[list[torch.Tensor]]:
    with plainly():
        return [
            whole.pieces(at, column, tuple(mesh.shape), seed)
            for at, column in enumerate(input_placements)
        ]


def _placed(
    whole: ReferenceRun,
    pieces: Sequence[Sequence[torch.Tensor]],
    input_placements: InputPlacements,
    mesh: DeviceMesh,
) -> list[DTensor]:
    return [
        of_pieces(held, tensor, column, mesh)
        for held, tensor, column in zip(pieces, whole.inputs, input_placements, strict=True)
    ]


def _compare(
    wanted: Wanted,
    pieces: Sequence[Sequence[torch.Tensor]],
    input_placements: InputPlacements,
    mesh: DeviceMesh,
) -> str | None:
    """Say what of outputs, of what is written to, or of gradients differs from the whole run."""
    whole = wanted.whole
    pull = wanted.gradients is not None
    with torch.inference_mode(is_composite(whole.op)), torch.set_grad_enabled(pull):
        given: list[Any] = list(_placed(whole, pieces, input_placements, mesh))
        if pull:
            given = [t.requires_grad_() if is_inexact(t) else t for t in given]
        args, kwargs = fill(whole.args, whole.kwargs, given)
        outputs = outputs_of(whole.op(*args, **kwargs))
        if len(outputs) != len(whole.outputs):
            return f"it returns {len(outputs)} outputs, the whole run {len(whole.outputs)}"
        for index, (got, want) in enumerate(zip(outputs, whole.outputs, strict=True)):
            message = _differs(got, want, wanted.relative, mesh)
            if message is not None:
                return f"output {index}{message}"
        for position, want in whole.mutated.items():
            message = _differs(given[position], want, wanted.relative, mesh)
            if message is not None:
                return f"input {position}, which the op writes to,{message}"
    return _compare_gradients(wanted, given, outputs, mesh) if pull else None


def _compare_gradients(
    wanted: Wanted, given: Sequence[Any], outputs: Sequence[Any], mesh: DeviceMesh
) -> str | None:
    """Say which gradient differs from that of the whole run."""
    everywhere = (REPLICATE,) * mesh.ndim
    live = [
        (output, of_pieces([upstream] * mesh.size(), upstream, everywhere, mesh))
        for output, upstream in zip(outputs, wanted.upstream, strict=True)
        if upstream is not None and output.requires_grad
    ]
    leaves = [tensor for tensor in given if tensor.requires_grad]
    try:
        pulled = iter(
            torch.autograd.grad(
                [output for output, _ in live],
                leaves,
                [upstream for _, upstream in live],
                materialize_grads=True,
            )
        )
    except (RuntimeError, NotImplementedError) as error:
        if is_refusal(error):
            raise _BackwardRefusedError(describe_error(error)) from error
        raise
    assert wanted.gradients is not None
    for position, want in enumerate(wanted.gradients):
        got = next(pulled) if given[position].requires_grad else None
        if want is None or not (want.any() or isinstance(got, DTensor)):
            continue  # autograd makes up plain zeros where there is no gradient
        message = _differs(got, want, wanted.relative, mesh)
        if message is not None:
            return f"the gradient of input {position}{message}"
    return None


def _differs(got: Any, want: Any, relative: float, mesh: DeviceMesh) -> str | None:
    if not isinstance(want, torch.Tensor):
        gap = slot_difference(got, want, relative)
        return None if gap is None else f" {gap}"
    if not isinstance(got, DTensor):
        return f" is a {type(got).__name__}, no DTensor"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f" is {got.dtype} {tuple(got.shape)}, whole run {want.dtype} {tuple(want.shape)}"
    placements = placements_from_torch(got.placements)
    native = any(isinstance(p, Partial) and p.native is not None for p in placements)
    if native or any(isinstance(p, StridedShard) for p in placements):
        placements = (REPLICATE,) * mesh.ndim
        held = on_every_rank(got.full_tensor())
    else:
        held = on_every_rank(got)
    with plainly():
        found = rebuild_difference(held, want, placements, tuple(mesh.shape), relative)
    return None if found is None else f"{found[0]} {found[1]}"
