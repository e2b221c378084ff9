"""A call run as DTensor runs it, on tensors without data, and what was decided on the way."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._pytree import tree_leaves

from dtensor_registry.errors import RegistryError
from dtensor_registry.explanation.query import AskedCall, told_by
from dtensor_registry.explanation.values import Decider
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.watch import OpRun, watching
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.decision import Decision, recording
from dtensor_registry.torch_runtime.decomposition import is_composite
from dtensor_registry.torch_runtime.execute import waits_for_shapes


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What became of a call.

    Attributes:
        schema: the call as torch's propagator writes it.
        decision: what dispatch decided of it, last; None if nothing was to be decided.
        decider: what kind of answer it got.
        outputs: what each output is, None for one that is no tensor; None if nothing came out.
        ran: the ops that ran, and what they communicated.
        reads: whether it came to where it needs data, and went no further.
        error: what was raised, None if the call went through.
        warnings: what was said on the way.
    """

    schema: OpSchema
    decision: Decision | None
    decider: Decider
    outputs: tuple[DTensorSpec | None, ...] | None
    ran: tuple[OpRun, ...]
    reads: bool
    error: Exception | None
    warnings: tuple[str, ...]


def dispatch(call: AskedCall) -> Dispatched:
    """Run a call as DTensor runs it."""
    ran: list[OpRun] = []
    made: list[Decision] = []
    result: Any = None
    error: Exception | None = None
    with (
        warnings.catch_warnings(record=True) as said,
        recording(made.append),
        watching(ran.append),
        torch.no_grad(),
        call.mode,
    ):
        warnings.simplefilter("always")
        try:
            result = call.op(*call.args, **call.kwargs)
        except Exception as raised:  # whatever it is, it is the answer that a user gets
            error = raised
    reads = error is not None and waits_for_shapes(error) and _named(error) is None
    if reads:
        error = None  # it came to where it needs data: there is no more to see
    decision = next((d for d in reversed(made) if d.schema.op is call.op), None)
    outputs = tuple(_outputs(result)) if error is None and result is not None else None
    return Dispatched(
        read_arguments(call.op, call.args, call.kwargs, None).schema,
        decision,
        _decider(call, decision, error),
        outputs,
        tuple(ran),
        reads,
        error,
        tuple(dict.fromkeys(str(w.message) for w in said)),
    )


def reason_of(error: Exception) -> str:
    """Say what an error says, without what torch wraps around one of ours."""
    named = _named(error)
    return told_by(error) if named is None else str(named)


def _named(error: BaseException | None) -> RegistryError | None:
    while error is not None:
        if isinstance(error, RegistryError):
            return error
        error = error.__cause__
    return None


def _decider(call: AskedCall, decision: Decision | None, error: Exception | None) -> Decider:
    """Name what gave the answer; an op that torch takes into parts is not decided itself."""
    if decision is None and is_composite(call.op):
        return "composite"
    if decision is not None and decision.passed_over and error is None:
        return "decomposition"
    decider = None if decision is None else decision.decider
    decider = decider or LOAN.owner(call.op).decider
    return "nobody" if decider == "decomposition" and error is not None else decider


def _outputs(result: Any) -> Iterator[DTensorSpec | None]:
    for leaf in tree_leaves(result, is_leaf=lambda value: value is None):
        if leaf is None:
            yield None
        elif isinstance(leaf, DTensor):
            yield leaf._spec
