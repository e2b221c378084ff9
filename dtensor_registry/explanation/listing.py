"""All that could have been chosen for a call: by rows, or as torch's function has it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy

from dtensor_registry.errors import RuleError
from dtensor_registry.explanation.dispatched import Dispatched
from dtensor_registry.placements import Placements
from dtensor_registry.planner import Candidate, candidates, objection, shard_kinds
from dtensor_registry.planner.problem import Problem, combine
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_runtime.call import Call, read_call, tensor_specs
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry.torch_runtime.foreach import decide_elements, runs_per_element
from dtensor_registry.torch_runtime.move_prices import pricer

_PLACEMENTS = re.compile(r"\((?:[^()]|\([^()]*\))*\)")

MOST = 50_000
"""Combinations that are listed at most; the search for the cheapest looks at far fewer."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One possible choice, or one that is not possible."""

    outputs: tuple[Placements | None, ...]
    inputs: tuple[Placements, ...]
    rows: tuple[int, ...] = ()
    cost: float = math.inf
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is to choose from.

    Attributes:
        specs: the inputs that the choices are about; those of the first element for an op over
            lists.
        problem: the call as a question of rows, or None where no rows decide.
        valid: choices, cheapest first; as dispatch has them, if it chose one.
        invalid: combinations of rows that are no choices, with reasons.
        note: why this is not everything.
        left_out: rows of torch's rule that this call does without, and why.
    """

    specs: tuple[DTensorSpec, ...] = ()
    problem: Problem | None = None
    valid: tuple[Listed, ...] = ()
    invalid: tuple[Listed, ...] = ()
    note: str = ""
    left_out: tuple[str, ...] = ()


def list_choices(dispatched: Dispatched) -> Listing:
    """List what dispatch had to choose from; nothing where asking raises what the call raised."""
    try:
        return _listing(dispatched)
    except Exception:
        if dispatched.error is None:
            raise
        return Listing()


def _listing(dispatched: Dispatched) -> Listing:
    schema = dispatched.schema
    strategy_schema = propagator()._wrap_with_op_strategy(schema)
    try:
        meta = propagator()._propagate_tensor_meta_non_cached(schema)
    except (RuntimeError, NotImplementedError):
        return Listing(note="shapes are known only after the op has run, so nothing is listed")
    if dispatched.rule is None:
        return _of_function(strategy_schema) if dispatched.decider == "torch" else Listing()
    note = ""
    if runs_per_element(strategy_schema):
        first: list[tuple[OpSchema, Any]] = []

        def keep(element: OpSchema, element_meta: Any) -> None:
            first.append((element, element_meta))

        decide_elements(strategy_schema, meta, keep)
        if not first:
            return Listing(note="torch decides this op over lists itself")
        strategy_schema, meta = first[0]
        note = "decided element by element; the choices are those of the first"
    try:
        call = read_call(
            dispatched.rule,
            strategy_schema,
            tensor_specs(strategy_schema),
            meta,
            dispatched.executed,
        )
    except RuleError:
        return Listing()  # the call itself raised it
    if isinstance(call, str):
        return Listing()
    left_out = _left_out(dispatched, strategy_schema)
    return replace(_of_rows(call, dispatched, note), left_out=left_out)


def _left_out(dispatched: Dispatched, schema: OpSchema) -> tuple[str, ...]:
    """List the rows of torch's rule that this call does without, and why."""
    rule = getattr(dispatched.rule, "func", None)
    if not isinstance(rule, CorrectedRule):
        return ()
    found = rule.left_out(schema.op, schema.args_meta, schema.kwargs_meta)
    return tuple(f"{row}: {wrong.because}" for row, wrong in found)


def _of_rows(call: Call, dispatched: Dispatched, note: str) -> Listing:
    specs = tuple(sources[0] for sources in call.specs)
    if not shard_kinds(call.problem.inputs):
        note = "no input is sharded: rows that shard as the inputs do are left out"
    count = len(call.problem.rows) ** len(call.problem.mesh_shape)
    if count > MOST:
        note = f"{count:,} combinations of rows, more than {MOST:,}, are not listed"
        return Listing(specs, call.problem, note=note)
    problem = call.problem
    found = _sorted(call, problem)
    chosen = dispatched.inputs
    if chosen is not None and found and len(chosen) == len(specs):
        least = [placements_from_torch(spec.placements) for spec in chosen]
        emptier = replace(problem, every_rank_has_some=True)
        if list(found[0].inputs) != least:
            # dispatch passed the cheapest over, as it does where a rank would raise alone
            without = _sorted(call, emptier)
            if without and list(without[0].inputs) == least:
                problem, found = emptier, without
    valid = tuple(Listed(c.outputs, c.inputs, c.rows, c.cost) for c in found)
    return Listing(specs, problem, valid, tuple(_invalid(problem)), note)


def _sorted(call: Call, problem: Problem) -> list[Candidate]:
    """List the valid choices as they are preferred: `cheapest_exhaustive` takes the first."""
    sources = tuple(tensor.sources[0] for tensor in problem.inputs)
    return sorted(
        candidates(problem, pricer(call.mesh, call.specs)),
        key=lambda candidate: (candidate.cost, candidate.inputs != sources),
    )


def _invalid(problem: Problem) -> list[Listed]:
    found = []
    for rows in itertools.product(range(len(problem.rows)), repeat=len(problem.mesh_shape)):
        outputs, inputs = combine(problem, rows)
        reason = objection(problem, outputs, inputs)
        if reason is not None:
            found.append(Listed(outputs, inputs, rows, reason=reason))
    return _each_kind_first(found)


def _each_kind_first(found: Sequence[Listed]) -> list[Listed]:
    """Put one of each kind of reason first, so that the beginning of the list tells them all."""
    kinds: dict[str, Listed] = {}
    for listed in found:
        kinds.setdefault(_PLACEMENTS.sub("", listed.reason), listed)
    first = {id(listed) for listed in kinds.values()}
    return [*kinds.values(), *(listed for listed in found if id(listed) not in first)]


def _of_function(strategy_schema: OpSchema) -> Listing:
    """Ask torch's function for the whole mesh what there is."""
    function = propagator().op_strategy_funcs.get(strategy_schema.op)
    if function is None:
        return Listing(note="torch's rule for this op gives one answer and lists no others")
    specs = tuple(sources[0] for sources in tensor_specs(strategy_schema))
    strategy = function(strategy_schema)
    if not isinstance(strategy, OpStrategy):
        return Listing(note="torch decides this op element by element and lists no choices")
    found = []
    for spec in strategy.strategies:
        if spec.input_specs is None or len(spec.input_specs) != len(specs):
            continue
        outputs = spec.output_specs
        outputs = outputs if isinstance(outputs, Sequence) else (outputs,)
        costs = spec.redistribute_cost or [[0.0]]
        found.append(
            Listed(
                tuple(None if o is None else placements_from_torch(o.placements) for o in outputs),
                tuple(placements_from_torch(i.placements) for i in spec.input_specs),
                cost=float(sum(cost for row in costs for cost in row)),
            )
        )
    return Listing(specs, None, tuple(sorted(found, key=lambda listed: listed.cost)))
