"""An explanation, put together from what dispatch did and what it had to choose from."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.distributed.tensor import DTensor

from dtensor_registry.discovery import PROGRAM
from dtensor_registry.explanation import Choice, Explanation, Part, Piece, TensorShown
from dtensor_registry.explanation.listing import Listing, list_choices
from dtensor_registry.explanation.moves import choice_of, mesh_dims_of
from dtensor_registry.explanation.providers import Known, providers_of
from dtensor_registry.explanation.query import told_by
from dtensor_registry.explanation.values import Decider
from dtensor_registry.explanation.why_not import why_not
from dtensor_registry.placements import REPLICATE
from dtensor_registry.planner import Candidate
from dtensor_registry.torch_fake.call import Dispatched, FakeCall, dispatch, named_error
from dtensor_registry.torch_fake.dispatch import piece_of
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.watch import OpRun
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.decision import Owner, Spec
from dtensor_registry.torch_runtime.decomposition import is_composite
from dtensor_registry.torch_runtime.explain_command import dtype_name
from dtensor_registry.torch_runtime.ops import Op
from dtensor_registry.torch_runtime.schema import facts, input_names

RANKS_DRAWN = 64
"""Ranks whose pieces are listed; the first of a larger mesh."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much is to be told.

    Attributes:
        most: candidates and rejected combinations to list; None: all.
        questions: choices to be asked about, see `parse_choice`.
    """

    most: int | None = 10
    questions: tuple[str, ...] = ()


def explain_op(op: Op, known: Known) -> Explanation:
    """Say who has something to say about an op, whatever the call."""
    providers = providers_of(op, known, "", is_composite(op))
    decides = next((p.name for p in providers if p.decides), "nobody")
    return Explanation(str(op), providers, decides)


def explain_call(call: FakeCall, known: Known, wanted: Wanted) -> Explanation:
    """Dispatch a call on tensors without data and say what was decided, by whom, and why.

    Raises:
        NotationError: for a question that is no choice.
        AskedError: for one that does not fit the call.
    """
    dispatched = dispatch(call)
    owner = None if dispatched.decision is None else dispatched.decision.owner
    owner = owner or LOAN.owner(call.op)
    decider = _decider(call, dispatched, owner)
    by = decider if decider in ("decomposition", "nobody") else owner.name
    listing = list_choices(dispatched, decider)
    specs = call.specs
    given = input_names(call.op, call.args, call.kwargs, lambda v: isinstance(v, DTensor))
    names = [name for name, _ in given]
    chosen = _chosen(call, dispatched)
    valid = [choice_of(listing.specs, listed) for listed in listing.valid[: wanted.most]]
    own = listing.specs and len(listing.specs) == len(specs)
    questions = [
        why_not(text, listing, chosen if own or not listing.specs else None, names, call.mesh.ndim)
        for text in wanted.questions
    ]
    counted = listing.problem is None or listing.valid or listing.invalid
    return Explanation(
        op=str(call.op),
        providers=providers_of(call.op, known, by, decider == "composite", dispatched.decision),
        decided_by=_told(decider, owner, by),
        decider=decider,
        arguments=_others(call),
        mesh_shape=tuple(call.mesh.shape),
        mesh_dims=mesh_dims_of(specs),
        inputs=tuple(_tensor(name, spec) for name, spec in zip(names, specs, strict=True)),
        rows=_rows(listing),
        candidates=tuple(valid),
        rejected=listing.invalid[: wanted.most],
        valid=len(listing.valid) if counted else None,
        invalid=len(listing.invalid) if counted else None,
        chosen=chosen,
        outputs=tuple(
            _tensor(f"output {at}", spec)
            for at, spec in enumerate(dispatched.outputs or ())
            if spec is not None
        ),
        collectives=_collectives(dispatched.ran),
        parts=_parts(run for run in dispatched.ran if run.op != str(call.op)),
        executed=dispatched.decision is not None and dispatched.decision.executed,
        error=None if dispatched.error is None else _reason(dispatched.error),
        notes=tuple(_notes(call, dispatched, listing)),
        why_not=tuple(questions),
    )


def _decider(call: FakeCall, dispatched: Dispatched, owner: Owner) -> Decider:
    """Name what gave the answer; an op that torch takes into parts is not decided itself."""
    decision, error = dispatched.decision, dispatched.error
    if decision is None and is_composite(call.op):
        return "composite"
    if decision is not None and decision.passed_over and error is None:
        return "decomposition"
    decider = (None if decision is None else decision.decider) or owner.decider
    return "nobody" if decider == "decomposition" and error is not None else decider


def _reason(error: Exception) -> str:
    """Say what an error says, without what torch wraps around one of ours."""
    named = named_error(error)
    return told_by(error) if named is None else str(named)


def _chosen(call: FakeCall, dispatched: Dispatched) -> Choice | None:
    """Show what dispatch chose, with the rows that it is made of where rows decided."""
    decision, specs = dispatched.decision, call.specs
    if dispatched.error is not None or decision is None or decision.wanted is None:
        return None
    if len(decision.wanted) != len(specs):
        return None
    inputs = tuple(placements_from_torch(spec.placements) for spec in decision.wanted)
    outputs = tuple(
        None if spec is None else placements_from_torch(spec.placements)
        for spec in dispatched.outputs or ()
    )
    if dispatched.reads and decision.executed:
        # Only whole results can be described once they are there, so they are replicated.
        whole = (REPLICATE,) * specs[0].mesh.ndim
        outputs = (whole,) * facts(call.op).tensor_outputs
    rows = decision.choices[0].rows if decision.choices and not decision.elements else ()
    return choice_of(specs, Candidate(rows, outputs, inputs, ()))


def _tensor(name: str, spec: Spec) -> TensorShown:
    meta: Any = spec.tensor_meta
    mesh_shape = tuple(spec.mesh.shape)
    places = itertools.islice(itertools.product(*map(range, mesh_shape)), RANKS_DRAWN)
    pieces = []
    for rank, coordinate in enumerate(places):
        shape, offset = piece_of(spec, coordinate)
        pieces.append(Piece(rank, coordinate, offset, shape))
    return TensorShown(
        name=name,
        dtype=dtype_name(meta.dtype),
        shape=tuple(map(int, meta.shape)),
        placements=tuple(map(str, placements_from_torch(spec.placements))),
        local_shape=pieces[0].shape,
        pieces=tuple(pieces),
    )


def _others(call: FakeCall) -> str:
    """Write the arguments that are no tensors."""
    return ", ".join(
        f"{parameter.name}={value!r}"
        for parameter, value in facts(call.op).signature.named(call.args, call.kwargs)
        if not any(isinstance(v, DTensor) for v in (value if isinstance(value, list) else [value]))
    )


def _rows(listing: Listing) -> tuple[str, ...]:
    if listing.problem is None:
        return ()
    return tuple(map(listing.problem.show_row, range(len(listing.problem.rows))))


def _told(decider: Decider, owner: Owner, by: str) -> str:
    """Say in a few words who decided a call."""
    if owner.name == PROGRAM:
        return str(owner.origin)
    if decider in ("rule", "fallback") and owner.origin is not None:
        return f"{by}: {owner.origin}"
    if decider == "torch rule" and owner.origin is not None:
        return f"{by}: {owner.origin}; torch's own rule, expanded by the host"
    return {
        "rule": "a function for the whole mesh, given by a context",
        "torch rule": "torch's own rule for one mesh dim, expanded by the host",
        "torch": "torch's own rule",
        "decomposition": "torch, which follows placements through the op's decomposition",
        "composite": "nobody: torch takes the op into parts before DTensor sees it",
        "handler": "a handler of torch's, which runs the op itself",
        "fallback": by,
        "nobody": "nobody",
    }[decider]


def _notes(call: FakeCall, dispatched: Dispatched, listing: Listing) -> Iterable[str]:
    decision = dispatched.decision
    for row in listing.left_out:
        yield f"left out of torch's rule: {row}"
    amended = LOAN.amended(call.op)
    note = None if amended is None or dispatched.error else amended.note(call.schema)
    if note is not None:
        yield note
    if decision is not None and decision.passed_over and dispatched.error is None:
        yield f"{LOAN.owner(call.op).name} has no way to run it: {decision.passed_over}"
    if decision is not None and decision.executed:
        yield "the host runs this op itself, each time, without torch's cache"
    if dispatched.reads:
        yield "it reads values, so nothing can be said of its outputs without data"
    elif listing.note:
        yield listing.note
    for warning in dispatched.warnings:
        yield " ".join(warning.split())


def _collectives(ran: Iterable[OpRun]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for run in ran:
        total.update(run.collectives)
    return dict(sorted(total.items()))


def _parts(ran: Iterable[OpRun]) -> tuple[Part, ...]:
    """Sum up the other ops, in the order in which each ran first."""
    choices: dict[tuple[str, str], list[str]] = {}
    for run in ran:
        choices.setdefault((run.op, run.decided_by), []).append(run.choice)
    return tuple(
        Part(op, len(made), by, tuple(dict.fromkeys(filter(None, made))))
        for (op, by), made in choices.items()
    )
