"""How much the search looks at: every step that leaves something out is worth its lines."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from dtensor_registry.placements import REPLICATE, Partial, Placements, Shard, parse_placements
from dtensor_registry.planner import Problem, Row, TensorInput, Topology, branch_and_bound, cheapest
from dtensor_registry.planner.branch_and_bound import Search
from dtensor_registry.planner.targets import Moves

SIX = Topology.assumed((2,) * 6, devices_per_host=8)


def read(rows: str) -> tuple[Row, ...]:
    found: Any = [parse_placements(row) for row in rows.split("|")]
    return tuple(found)


MM = read(
    "R,R,R | P,S(1),S(0) | S(0),S(0),R | S(1),R,S(1)"
    "| P,P,R | P(avg),P(avg),R | P,R,P | P(avg),R,P(avg)"
)


def mm(*sources: Placements) -> Problem:
    inputs = tuple(TensorInput((4096, 4096), (source,), nbytes=2**26) for source in sources)
    return Problem(Topology.assumed((2,) * len(sources[0]), 8), MM, 1, inputs)


def random_mm(count: int, mesh_ndim: int) -> list[Problem]:
    rng = random.Random(1)
    entries = (REPLICATE, Shard(0), Shard(1), Partial("sum"))
    return [
        mm(*(tuple(rng.choice(entries) for _ in range(mesh_ndim)) for _ in range(2)))
        for _ in range(count)
    ]


def effort(problems: list[Problem]) -> int:
    """Count the nodes and leaves that are looked at."""
    choices = [cheapest(problem) for problem in problems]
    return sum(choice.nodes + choice.leaves for choice in choices if choice is not None)


def _tell_all_options_apart(patch: pytest.MonkeyPatch) -> None:
    equivalence_keys = Moves.equivalence_keys

    def apart(self: Moves, mesh_dim: int, finite: bool) -> Any:
        found = equivalence_keys(self, mesh_dim, finite)
        return [key and (option, *key[1:]) for option, key in enumerate(found)]

    patch.setattr(Moves, "equivalence_keys", apart)


STEPS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], float]] = {
    "the bound on what is still to come": (
        lambda patch: patch.setattr(Search, "_bound", lambda self: None),
        3.0,
    ),
    "any bound at all": (lambda patch: patch.setattr(branch_and_bound, "SLACK", 1e-12), 15.0),
    "one row for each effect": (_tell_all_options_apart, 1.2),
}


@pytest.mark.parametrize("step", STEPS)
def test_without_it_the_search_looks_at_more_for_the_same_choices(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out, times = STEPS[step]
    problems = random_mm(30, mesh_ndim=4)
    choices = [cheapest(problem) for problem in problems]
    before = effort(problems)
    leave_out(monkeypatch)
    assert effort(problems) > times * before
    assert [str(c).split("\n")[0] for c in map(cheapest, problems)] == [
        str(c).split("\n")[0] for c in choices
    ]


def test_a_search_looks_at_a_small_part_of_all_combinations() -> None:
    problems = random_mm(30, mesh_ndim=5)
    assert effort(problems) < 0.02 * len(problems) * len(MM) ** 5


def test_inputs_that_fit_need_no_search() -> None:
    choice = cheapest(mm((Shard(0),) * 6, (REPLICATE,) * 6))
    assert choice is not None
    assert (choice.cost, choice.nodes, choice.leaves) == (0.0, 0, 1)


def test_a_choice_that_costs_nothing_ends_the_search() -> None:
    # No row keeps both inputs, and cutting is free: 7**6 choices tie.
    rows = MM[1:4]
    inputs = tuple(TensorInput((4096, 4096), ((REPLICATE,) * 6,), nbytes=2**26) for _ in "xw")
    choice = cheapest(Problem(SIX, rows, 1, inputs))
    assert choice is not None
    assert (choice.cost, choice.candidate.rows, choice.nodes) == (0.0, (0,) * 6, 6)


def test_a_call_that_can_only_be_infinitely_dear_is_not_searched() -> None:
    rows = read("R,P(max) | S(0),P(max) | S(1),P(max)")
    x = TensorInput((4096,), ((Shard(0),) * 6,), nbytes=2**14)
    choice = cheapest(Problem(SIX, rows, 1, (x,)))
    assert choice is not None
    assert (choice.cost, choice.candidate.rows, choice.nodes) == (math.inf, (0,) * 6, 6)


DEAD_ENDS = {
    # Row 0 is free and first, but the innermost mesh dim can only take the last row.
    "kinds of partial that clash in an output": ("P(max),P(avg) | P(min),R", ["R", "P(sum)"]),
    "kinds of partial that clash in an input": ("R,P(max) | R,P(min)", ["R", "P(min)"]),
}


@pytest.mark.parametrize("dead_end", DEAD_ENDS)
def test_a_dead_end_is_left_before_the_innermost_mesh_dim(dead_end: str) -> None:
    rows, (outer, inner) = DEAD_ENDS[dead_end]
    source: Any = parse_placements(", ".join([outer] * 5 + [inner]))
    x = TensorInput((4096, 4096), (source,), nbytes=2**26)
    choice = cheapest(Problem(SIX, read(rows), 1, (x,)))
    assert choice is not None
    assert choice.candidate.rows == (1,) * 6
    assert choice.nodes <= 11  # the root, and both rows all the way but for the last step


def test_an_uneven_input_that_no_longer_stays_is_a_dead_end() -> None:
    rows = read("R,P,S(0) | R,R,S(0) | R,S(0),S(0)")
    everywhere = (REPLICATE,) * 6
    x = TensorInput((1, 64), ((Shard(0), *everywhere[1:]),), nbytes=2**8)
    y = TensorInput((64, 64), (everywhere,), nbytes=2**14)
    choice = cheapest(Problem(SIX, rows, 1, (x, y), allow_uneven_sharding=True))
    assert choice is not None
    assert (choice.cost, choice.candidate.rows, choice.nodes) == (0.0, (2, 1, 1, 1, 1, 1), 6)


def test_each_target_of_an_input_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[tuple[int, tuple[int, ...], int]] = []
    choose = Moves.choose

    def counted(self: Moves, before: Any, mesh_dim: int, option: int, factor: float) -> Any:
        worked_out.append((id(self), before.options, option))
        return choose(self, before, mesh_dim, option, factor)

    monkeypatch.setattr(Moves, "choose", counted)
    (problem,) = random_mm(1, mesh_ndim=4)
    cheapest(problem)
    assert len(worked_out) == len(set(worked_out)) > 8
