"""The explanation that a choice prints, whole."""

from __future__ import annotations

from typing import Any

from dtensor_registry.placements import parse_placements
from dtensor_registry.planner import Problem, SearchResult, TensorInput, Topology, cheapest

MM = "R R R | P(sum) S(1) S(0) | S(0) S(0) R | S(1) R S(1)"


def choose(rows: str, *sources: str, ask: Any = None, **more: Any) -> SearchResult:
    read: Any = [
        tuple(None if entry == "-" else parse_placements(entry)[0] for entry in row.split())
        for row in rows.split("|")
    ]
    found: Any = [parse_placements(source) for source in sources]
    inputs = tuple(TensorInput((1024, 1024), (source,), nbytes=2**22, **more) for source in found)
    topology = Topology.assumed((2, 4)[: len(found[0])], devices_per_host=8)
    choice = cheapest(Problem(topology, tuple(read), len(read[0]) - len(inputs), inputs), ask)
    assert choice is not None
    return choice


def test_it_tells_the_rows_the_moves_with_their_collectives_and_what_was_looked_at() -> None:
    assert str(choose(MM, "S(0), P(sum)", "S(0), R")) == (
        "(S(0), P(sum)) <- (S(0), S(1)), (R, S(0))  54.57 us\n"
        "  mesh dim 0, 2 ranks: row 2, S(0) <- S(0), R; 4 of 4 rows looked at\n"
        "  mesh dim 1, 4 ranks: row 1, P(sum) <- S(1), S(0); 4 of 4 rows looked at\n"
        "  input 0: (S(0), P(sum)) -> (S(0), S(1)), 25.10 us\n"
        "    P(sum) -> S(1) on mesh dim 1: reduce_scatter of 2,097,152 bytes, 25.10 us\n"
        "  input 1: (S(0), R) -> (R, S(0)), 29.47 us\n"
        "    S(0) -> R on mesh dim 0: allgather of 4,194,304 bytes, 29.47 us\n"
        "    R -> S(0) on mesh dim 1: chunk\n"
        "  nodes: 5, leaves: 7, combinations: 16"
    )


def test_it_says_that_inputs_stay() -> None:
    assert str(choose(MM, "S(0), R", "R, S(1)")) == (
        "(S(0), S(1)) <- (S(0), R), (R, S(1))  0.00 us\n"
        "  mesh dim 0, 2 ranks: row 2, S(0) <- S(0), R; 1 of 4 rows looked at\n"
        "  mesh dim 1, 4 ranks: row 3, S(1) <- R, S(1); 1 of 4 rows looked at\n"
        "  input 0: (S(0), R) stays\n"
        "  input 1: (R, S(1)) stays\n"
        "  nodes: 0, leaves: 1, combinations: 16"
    )


def test_it_says_where_torch_itself_gave_the_price() -> None:
    assert str(choose("- R | - S(0)", "_S(0, 2)", ask=lambda *_: 2.5)) == (
        "- <- (R)  2.50 us\n"
        "  mesh dim 0, 2 ranks: row 0, - <- R; 2 of 2 rows looked at\n"
        "  input 0: (_S(0, 2)) -> (R), 2.50 us by torch's own estimate\n"
        "  nodes: 1, leaves: 2, combinations: 2"
    )


def test_an_op_without_outputs_has_an_empty_side() -> None:
    assert str(choose("S(0)", "S(0)")) == (
        "() <- (S(0))  0.00 us\n"
        "  mesh dim 0, 2 ranks: row 0, () <- S(0); 1 of 1 rows looked at\n"
        "  input 0: (S(0)) stays\n"
        "  nodes: 0, leaves: 1, combinations: 1"
    )


def test_it_tells_the_cost_in_all() -> None:
    choice = choose(MM, "S(0), P(sum)", "S(0), R")
    assert choice.cost == choice.candidate.cost == sum(cost for (cost,) in choice.candidate.costs)
