"""Why one choice is not the one that is made: what stops it, or what it would cost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dtensor_registry.errors import AskedError
from dtensor_registry.explanation import AskedChoice, Choice, WhyNot, parse_choice
from dtensor_registry.explanation.listing import Listing
from dtensor_registry.explanation.moves import choice_of, mesh_dims_of, placed
from dtensor_registry.explanation.text import show_cost, show_move, show_step
from dtensor_registry.placements import Placement, Placements, show_choice, show_placements
from dtensor_registry.planner import Candidate, Problem, objection
from dtensor_registry.planner.problem import combine
from dtensor_registry.torch_runtime.decision import Specs


def why_not(
    text: str,
    listing: Listing,
    chosen: Choice | None,
    names: Sequence[str],
    mesh_ndim: int,
) -> WhyNot:
    """Answer a question for one choice.

    Args:
        text: the choice, in the notation of `parse_choice`.
        listing: what there was to choose from.
        chosen: what was chosen, if anything was.
        names: of the inputs.
        mesh_ndim: how many dims the mesh has.

    Raises:
        NotationError: if the text is no choice.
        AskedError: if it has another number of tensors or of mesh dims than the call.
    """
    asked = parse_choice(text)
    _check(text, asked, len(names), mesh_ndim)
    inputs = tuple(placements for placements in asked.inputs if placements is not None)
    shown = show_choice(
        [placed(p) for p in asked.outputs] if asked.outputs is not None else [("any",)],
        [placed(p) for p in inputs],
    )
    if asked.outputs is None:
        shown = f"{show_choice([], [placed(p) for p in inputs]).removeprefix('() <- ')} as inputs"
    if chosen is not None and _is(chosen, asked):
        return WhyNot(shown, "It is what is chosen.")
    if listing.problem is None:
        return WhyNot(shown, _without_rows(asked, listing, chosen, names))
    return WhyNot(shown, _by_rows(listing.problem, listing, asked, chosen, names))


def _check(text: str, asked: AskedChoice, inputs: int, mesh_ndim: int) -> None:
    if len(asked.inputs) != inputs or None in asked.inputs:
        raise AskedError(
            f"--why-not {text!r}: the call has {inputs} tensor inputs, this names"
            f" {len(asked.inputs)}; write tensors apart by ';':  S(0),R; R,S(1) -> S(0),S(1)"
        )
    for placements in (*asked.inputs, *(asked.outputs or ())):
        if placements is not None and len(placements) != mesh_ndim:
            raise AskedError(
                f"--why-not {text!r}: ({show_placements(placements)}) is for {len(placements)}"
                f" mesh dims, the mesh has {mesh_ndim}"
            )


def _is(choice: Choice, asked: AskedChoice) -> bool:
    outputs = choice.outputs
    if asked.outputs is not None and tuple(map(placed, asked.outputs)) != outputs:
        return False
    return tuple(map(placed, asked.inputs)) == choice.inputs


def _by_rows(
    problem: Problem,
    listing: Listing,
    asked: AskedChoice,
    chosen: Choice | None,
    names: Sequence[str],
) -> str:
    """Look the choice up among the rows: on each mesh dim alone, then all together."""
    matching = []
    for mesh_dim, name in enumerate(mesh_dims_of(listing.specs)):
        outputs = None if asked.outputs is None else [_at(p, mesh_dim) for p in asked.outputs]
        inputs = [_at(p, mesh_dim) for p in asked.inputs]
        rows = [
            at
            for at, row in enumerate(problem.rows)
            if list(row[problem.num_outputs :]) == inputs
            and (outputs is None or list(row[: problem.num_outputs]) == outputs)
        ]
        if not rows:
            return _no_row(problem, name, outputs, inputs)
        matching.append(rows)
    reasons = []
    for rows_taken in itertools.product(*matching):
        outputs_there, inputs_there = combine(problem, rows_taken)
        reason = objection(problem, outputs_there, inputs_there)
        if reason is None:
            found = Candidate(rows_taken, outputs_there, inputs_there, ())
            return _valid(found, listing.specs, chosen, names)
        reasons.append(reason)
    return "It is not valid: " + "; ".join(dict.fromkeys(reasons)) + "."


def _at(placements: Placements | None, mesh_dim: int) -> Placement | None:
    return None if placements is None else placements[mesh_dim]


def _no_row(
    problem: Problem,
    mesh_dim: str,
    outputs: Sequence[Placement | None] | None,
    inputs: Sequence[Placement | None],
) -> str:
    wanted = show_placements(inputs)
    gives = [
        show_placements(row[: problem.num_outputs])
        for row in problem.rows
        if list(row[problem.num_outputs :]) == list(inputs)
    ]
    if outputs is None or not gives:
        return f"On mesh dim {mesh_dim} no row has inputs {wanted}."
    return (
        f"On mesh dim {mesh_dim} no row is {show_placements(outputs)} <- {wanted}:"
        f" with these inputs the output is {' or '.join(gives)}."
    )


def _valid(listed: Candidate, specs: Specs, chosen: Choice | None, names: Sequence[str]) -> str:
    choice = choice_of(specs, listed)
    cost = show_cost(choice.microseconds)
    if choice.microseconds is None:
        head = "It is valid, but torch gives no finite price to a move, so that it comes last:"
    elif chosen is None or chosen.microseconds is None:
        head = f"It is valid and costs {cost}:"
    elif choice.microseconds > chosen.microseconds:
        more = show_cost(choice.microseconds - chosen.microseconds)
        head = f"It is valid and costs {cost}, {more} more than what is chosen:"
    elif choice.microseconds == chosen.microseconds:
        head = (
            f"It is valid and costs {cost}, as what is chosen does. Among equals, inputs that all"
            " stay come first, then the order of rows:"
            f" its rows {choice.rows} come after {chosen.rows}."
            if choice.rows
            else f"It costs {cost}, as what is chosen does; torch's function lists it later."
        )
    else:
        head = f"It costs {cost}, less than what is chosen, but a rank would hold nothing of it."
    lines = [head]
    for name, move in zip(names, choice.moves, strict=False):
        lines.append(f"  {show_move(name, move)}")
        lines += [f"    {show_step(step)}" for step in move.steps]
    return "\n".join(lines)


def _without_rows(
    asked: AskedChoice, listing: Listing, chosen: Choice | None, names: Sequence[str]
) -> str:
    if not listing.valid:
        return "No rows decide this call, so nothing can be said of other choices."
    for listed in listing.valid:
        if listed.inputs == asked.inputs and asked.outputs in (None, listed.outputs):
            return _valid(listed, listing.specs, chosen, names)
    return "torch's function for this op does not offer it."
