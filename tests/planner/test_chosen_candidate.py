"""Which valid candidate is chosen, and what the full list says of each."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placements,
    Shard,
    parse_placements,
    show_placements,
)
from dtensor_registry.planner import (
    Problem,
    Row,
    TensorInput,
    Topology,
    candidates,
    cheapest_exhaustive,
    fill_rows,
)


def question(mesh_shape: tuple[int, ...], rows: list[str], *inputs: TensorInput) -> Problem:
    read: Any = [parse_placements(row) for row in rows]
    topology = Topology.assumed(mesh_shape, devices_per_host=8)
    return Problem(topology, tuple(read), len(read[0]) - len(inputs), inputs)


def tensor(*sources: str) -> TensorInput:
    read: Any = tuple(parse_placements(source) for source in sources)
    return TensorInput((64, 64), read)


def moves(inputs: tuple[TensorInput, ...]) -> Any:
    """Price a change by the number of mesh dims that change."""

    def price(position: int, target: Placements) -> tuple[float, ...]:
        return tuple(
            float(sum(a != b for a, b in zip(source, target, strict=True)))
            for source in inputs[position].sources
        )

    return price


def chosen(problem: Problem, price: Any = None) -> str:
    best = cheapest_exhaustive(problem, price or moves(problem.inputs))
    assert best is not None
    return " | ".join(show_placements(placements) for placements in best.inputs)


def test_the_least_cost_wins() -> None:
    rows = ["R, R, R", "S(0), S(0), R", "S(1), R, S(1)"]
    assert chosen(question((2,), rows, tensor("S(0)"), tensor("S(0)"))) == "S(0) | R"
    assert chosen(question((2,), rows, tensor("R"), tensor("S(1)"))) == "R | S(1)"


def test_every_mesh_dim_takes_its_own_row() -> None:
    rows = ["R, R, R", "S(0), S(0), R", "S(1), R, S(1)"]
    problem = question((2, 2), rows, tensor("S(0), R"), tensor("R, S(1)"))
    assert chosen(problem) == "S(0), R | R, S(1)"


def free(position: int, target: Placements) -> tuple[float, ...]:
    return (0.0,)


def test_among_equals_inputs_that_stay_as_they_are_come_first() -> None:
    problem = question((2,), ["R, R", "S(0), S(0)", "S(1), S(1)"], tensor("S(1)"))
    assert chosen(problem, free) == "S(1)"


def test_among_other_equals_the_first_row_on_the_outermost_mesh_dim_wins() -> None:
    problem = question((2, 2), ["S(0), S(0)", "S(1), S(1)"], tensor("R, R"))
    assert chosen(problem, free) == "S(0), S(0)"


def test_there_is_no_choice_where_no_candidate_is_valid() -> None:
    problem = question((128,), ["S(0), S(0)"], tensor("R"))
    assert cheapest_exhaustive(problem, free) is None
    assert candidates(problem, free) == ()


def test_several_sources_give_every_candidate_one_cost_per_source() -> None:
    x, y = tensor("S(0)", "R"), tensor("R", "S(1)", "S(0)")
    problem = question((2,), ["R, R, R", "S(0), S(0), R"], x, y)
    assert [(c.rows, c.costs, c.cost) for c in candidates(problem, moves(problem.inputs))] == [
        ((0,), ((1.0, 0.0), (0.0, 1.0, 1.0)), 3.0),
        ((1,), ((0.0, 1.0), (0.0, 1.0, 1.0)), 3.0),
    ]


ENTRIES = st.sampled_from([REPLICATE, Shard(0), Shard(1), Partial("sum"), Partial("max")])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    mesh_shape = draw(st.sampled_from([(2,), (3,), (2, 2), (2, 3)]))
    inputs = tuple(
        TensorInput(
            draw(st.sampled_from([(1, 8), (4, 4), (6, 3), (3, 8)])),
            (draw(st.tuples(*[ENTRIES] * len(mesh_shape))),),
        )
        for _ in range(draw(st.integers(1, 2)))
    )
    rows = draw(st.lists(st.tuples(*[ENTRIES] * (1 + len(inputs))), max_size=4))
    filled: tuple[Row, ...] = fill_rows(rows, 1, inputs)
    return Problem(Topology.assumed(mesh_shape, devices_per_host=8), filled, 1, inputs)


@given(problems())
def test_no_two_candidates_are_equal(problem: Problem) -> None:
    found = candidates(problem, moves(problem.inputs))
    assert len({(c.outputs, c.inputs) for c in found}) == len(found)


@given(problems())
def test_the_choice_is_a_candidate_and_none_costs_less(problem: Problem) -> None:
    price = moves(problem.inputs)
    best = cheapest_exhaustive(problem, price)
    found = candidates(problem, price)
    assert best in found
    assert best is not None
    assert best.cost == min(candidate.cost for candidate in found)


def test_a_candidate_prints_outputs_inputs_and_cost() -> None:
    problem = question((2,), ["S(0), S(0), R"], tensor("S(0)"), tensor("S(1)"))
    (candidate,) = candidates(problem, moves(problem.inputs))
    assert str(candidate) == "(S(0)) <- (S(0)), (R)  1.00 us"
