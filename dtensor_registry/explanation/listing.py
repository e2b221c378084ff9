"""All that could have been chosen for a call: by rows, or as torch's function has it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dtensor_registry.explanation.moves import placed
from dtensor_registry.explanation.values import Decider, Rejected
from dtensor_registry.planner import Candidate, candidates, objection, shard_kinds
from dtensor_registry.planner.problem import Problem, combine
from dtensor_registry.torch_fake.call import Dispatched
from dtensor_registry.torch_patch.corrected_rules import left_out_of
from dtensor_registry.torch_runtime.call import Call
from dtensor_registry.torch_runtime.decision import Decision, Specs
from dtensor_registry.torch_runtime.decomposition import function_choices
from dtensor_registry.torch_runtime.execute import waits_for_shapes
from dtensor_registry.torch_runtime.move_prices import pricer

_PLACEMENTS = re.compile(r"\((?:[^()]|\([^()]*\))*\)")

MOST = 50_000
"""Combinations that are listed at most; the search for the cheapest looks at far fewer."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is to choose from.

    Attributes:
        specs: the inputs that the choices are about; those of the first element for an op over
            lists.
        problem: the call as a question of rows, or None where no rows decide.
        valid: choices, cheapest first.
        invalid: combinations of rows that are no choices, with reasons.
        note: why this is not everything.
        left_out: rows of torch's rule that this call does without, and why.
    """

    specs: Specs = ()
    problem: Problem | None = None
    valid: tuple[Candidate, ...] = ()
    invalid: tuple[Rejected, ...] = ()
    note: str = ""
    left_out: tuple[str, ...] = ()


def list_choices(dispatched: Dispatched, decider: Decider) -> Listing:
    """List what dispatch had to choose from."""
    decision = dispatched.decision
    if decision is None:
        return Listing()
    if decision.call is not None:
        return _of_rows(decision, decision.call)
    if _waits(decision, dispatched.error):
        return Listing(note="shapes are known only after the op has run, so nothing is listed")
    if decider != "torch" or decision.error is not None:
        return Listing()
    found = function_choices(decision.schema)
    if isinstance(found, str):
        return Listing(note=found)
    return Listing(decision.inputs, valid=found)


def _waits(decision: Decision, error: Exception | None) -> bool:
    """Say whether the shapes of a call's outputs are not known beforehand."""
    if error is not None:
        return waits_for_shapes(error)
    return decision.planned is not None and decision.planned[1] is None


def _of_rows(decision: Decision, call: Call) -> Listing:
    specs = tuple(sources[0] for sources in call.specs)
    problem, left_out = call.problem, left_out_of(decision)
    note = "decided element by element; the choices are those of the first"
    if not decision.elements:
        note = ""
    if not shard_kinds(problem.inputs):
        note = "no input is sharded: rows that shard as the inputs do are left out"
    count = len(problem.rows) ** len(problem.mesh_shape)
    if count > MOST:
        note = f"{count:,} combinations of rows, more than {MOST:,}, are not listed"
        return Listing(specs, problem, note=note, left_out=left_out)
    sources = tuple(tensor.sources[0] for tensor in problem.inputs)
    valid = sorted(  # as they are preferred: the search for the cheapest takes the first
        candidates(problem, pricer(call.mesh, call.specs)),
        key=lambda candidate: (candidate.cost, candidate.inputs != sources),
    )
    return Listing(specs, problem, tuple(valid), tuple(_invalid(problem)), note, left_out)


def _invalid(problem: Problem) -> list[Rejected]:
    found = []
    for rows in itertools.product(range(len(problem.rows)), repeat=len(problem.mesh_shape)):
        outputs, inputs = combine(problem, rows)
        reason = objection(problem, outputs, inputs)
        if reason is not None:
            placements = tuple(tuple(map(str, p)) for p in inputs)
            found.append(Rejected(tuple(map(placed, outputs)), placements, reason))
    return _each_kind_first(found)


def _each_kind_first(found: Sequence[Rejected]) -> list[Rejected]:
    """Put one of each kind of reason first, so that the beginning of the list tells them all."""
    kinds: dict[str, Rejected] = {}
    for rejected in found:
        kinds.setdefault(_PLACEMENTS.sub("", rejected.reason), rejected)
    first = {id(rejected) for rejected in kinds.values()}
    return [*kinds.values(), *(rejected for rejected in found if id(rejected) not in first)]
