"""Which rows are looked at on one mesh dim, filter by filter."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dtensor_registry.placements import Partial, Placement, Shard, StridedShard, parse_placements
from dtensor_registry.planner import Grouped, Problem, TensorInput, Topology
from dtensor_registry.planner.row_filters import keep
from dtensor_registry.planner.row_table import Kinds, row_table
from dtensor_registry.planner.targets import Moves


def tensor(source: str, shape: tuple[int, ...] = (64, 64), **more: Any) -> TensorInput:
    read: Any = parse_placements(source)
    return TensorInput(shape, (read,), nbytes=4 * math.prod(shape), **more)


def kept(
    rows: str,
    *inputs: TensorInput,
    mesh_dim: int = 0,
    ranks: int = 4,
    finite: bool = True,
    ask: Any = None,
    **more: Any,
) -> list[str]:
    """Show the rows that are kept on one mesh dim."""
    read: Any = [
        tuple(None if entry == "-" else parse_placements(entry)[0] for entry in row.split())
        for row in rows.split("|")
    ]
    topology = Topology.assumed((ranks,) * len(inputs[0].sources[0]), devices_per_host=8)
    problem = Problem(topology, tuple(read), len(read[0]) - len(inputs), inputs, **more)
    table = row_table(problem.rows, problem.num_outputs)
    moves = [
        Moves(
            problem,
            position,
            entries,
            tuple(entries.index.get(p, -1) for p in inputs[position].sources[0]),
            ask,
        )
        for position, entries in enumerate(table.inputs)
    ]
    shown = [row.strip() for row in rows.split("|")]
    found = keep(problem, table, moves, mesh_dim, range(len(read)), finite)
    assert all(table.options[row] == options for row, options in found)
    return [shown[row] for row, _ in found]


ALL = "R R | S(0) S(0) | S(1) S(1)"


def test_a_row_that_moves_a_pinned_input_is_left_out() -> None:
    x = tensor("S(1), S(0)", pinned="'x', which the op writes to,")
    assert kept(ALL, x) == ["S(1) S(1)"]
    assert kept(ALL, x, mesh_dim=1) == ["S(0) S(0)"]
    assert kept(ALL, tensor("P(sum)", pinned="'x', which the op writes to,")) == []


def test_a_row_that_gives_a_tied_output_another_placement_is_left_out() -> None:
    rows = "S(0) S(0) | R S(0) | R R | S(1) R"
    assert kept(rows, tensor("R"), ties=((0, 0),)) == ["R S(0)", "R R"]
    # A masked output is tied to nothing.
    assert kept("- S(0) | - R", tensor("R"), ties=((0, 0),)) == ["- S(0)", "- R"]
    # What is a tensor in some rows only is judged when the mesh dims are put together.
    assert kept("S(0) S(0) | - R", tensor("R"), ties=((0, 0),)) == ["S(0) S(0)", "- R"]


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ((4, 4), ["R R", "S(0) S(0)", "S(1) S(1)"]),
        ((3, 4), ["R R", "S(1) S(1)"]),
        ((5, 0), ["R R", "S(0) S(0)"]),
        ((4,), ["R R", "S(0) S(0)"]),
        ((), ["R R"]),
    ],
)
def test_a_row_that_cuts_a_dim_into_more_pieces_than_elements_is_left_out(
    shape: tuple[int, ...], left: list[str]
) -> None:
    assert kept(ALL, tensor("R", shape)) == left


def test_a_strided_shard_needs_an_element_for_each_of_its_groups() -> None:
    x = tensor("R", (11,))
    assert kept("R _S(0,2) | R _S(0,3)", x, ask=lambda *_: 1.0) == ["R _S(0,2)"]


def test_an_uneven_input_may_stay_as_it_is_where_that_is_allowed() -> None:
    x = tensor("S(0)", (1, 8))
    assert kept(ALL, x) == ["R R", "S(1) S(1)"]
    assert kept(ALL, x, allow_uneven_sharding=True) == ["R R", "S(0) S(0)", "S(1) S(1)"]
    assert kept(ALL, tensor("R", (1, 8)), allow_uneven_sharding=True) == ["R R", "S(1) S(1)"]


def test_a_row_that_needs_a_move_of_infinite_price_is_left_out_at_first() -> None:
    rows = "P(sum) P(sum) | R R"
    assert kept(rows, tensor("S(0)")) == ["R R"]
    assert kept(rows, tensor("P(max)")) == ["R R"]
    assert kept(rows, tensor("S(0)"), finite=False) == ["P(sum) P(sum)", "R R"]


def test_integers_are_not_divided_into_a_sum() -> None:
    rows = "P(sum) P(sum) | P(max) P(max) | S(0) S(0)"
    assert kept(rows, tensor("R")) == ["P(sum) P(sum)", "P(max) P(max)", "S(0) S(0)"]
    assert kept(rows, tensor("R", divisible=False)) == ["P(max) P(max)", "S(0) S(0)"]
    assert kept(rows, tensor("P(sum)", divisible=False)) == ["P(sum) P(sum)", "S(0) S(0)"]


def test_of_rows_that_do_the_same_the_first_is_kept() -> None:
    # A whole tensor is partial at no cost: R and P(sum) are one option to it.
    rows = "R R S(0) | R P(sum) S(0) | S(0) R S(0) | R R R"
    assert kept(rows, tensor("R"), tensor("R")) == ["R R S(0)", "R R R"]
    # To a tensor that is not whole, they are two.
    assert kept(rows, tensor("P(sum)"), tensor("R")) == ["R R S(0)", "R P(sum) S(0)", "R R R"]


def test_rows_that_could_rule_out_other_combinations_are_not_the_same() -> None:
    # Kinds of partial that clash, in an input and in an output.
    assert kept("R R | R P(sum) | R P(max)", tensor("R")) == ["R R", "R P(sum)", "R P(max)"]
    assert kept("P(sum) R | P(max) R | P(max) P(max)", tensor("R")) == ["P(sum) R", "P(max) R"]
    # Sums and averages do not clash.
    assert kept("P(sum) R | P(avg) R | R P(sum) | R P(avg)", tensor("R")) == ["P(sum) R"]
    # An output that is a tensor in some rows only.
    assert kept("- R | R R | S(0) R", tensor("R")) == ["- R", "R R", "S(0) R"]
    # An uneven input that stays may be cut further out into too many pieces.
    assert kept("R R | R P(sum)", tensor("R"), allow_uneven_sharding=True) == ["R R", "R P(sum)"]


@pytest.mark.parametrize(
    ("position", "groups", "left"),
    [
        (0, 8, ["R R", "S(0) S(0)", "S(1) S(1)"]),
        (0, 6, ["R R", "S(1) S(1)"]),
        (1, 2, ["R R", "S(1) S(1)"]),
        (1, 64, ["R R", "S(0) S(0)", "S(1) S(1)"]),
    ],
)
def test_a_row_that_cuts_groups_of_an_input_or_output_is_left_out(
    position: int, groups: int, left: list[str]
) -> None:
    assert kept(ALL, tensor("R"), grouped=(Grouped(position, 0, groups),)) == left


def test_an_output_that_holds_groups_tells_rows_apart() -> None:
    rows = "S(0) S(0) | S(1) S(0) | R S(0)"
    assert kept(rows, tensor("R")) == ["S(0) S(0)"]
    grouped = (Grouped(0, 0, 8),)
    assert kept(rows, tensor("R"), grouped=grouped) == ["S(0) S(0)", "S(1) S(0)", "R S(0)"]
    # In a row that is masked elsewhere the output may turn out to be no tensor.
    rows = "S(0) S(0) | - S(1)"
    assert kept(rows, tensor("R"), grouped=(Grouped(0, 0, 3),)) == ["S(0) S(0)", "- S(1)"]


def test_options_that_only_torch_can_price_are_all_different() -> None:
    x = tensor("R", priced_by_torch=True)
    assert kept("R R | R P(sum)", x, ask=lambda *_: 1.0) == ["R R", "R P(sum)"]


def test_kinds_of_partial_are_told_apart_only_where_some_clash() -> None:
    commuting: list[Placement] = [Partial("sum"), Partial("avg"), Partial("sum"), Shard(0)]
    assert Kinds.among(commuting) is None
    assert Kinds.among([Partial("max"), Partial("max"), None]) is None
    kinds = Kinds.among([*commuting, Partial("max"), None])
    assert kinds == Kinds(of=(1, 2, 1, 0, 4, 0), exclusive=4)
    assert [kinds.clash(bits) for bits in (0, 1, 3, 4, 5, 6)] == [False] * 4 + [True] * 2


def test_a_table_is_made_once_for_equal_rows() -> None:
    rows = ((Shard(0), Shard(1)), (Shard(0), StridedShard(0, 2)))
    again = ((Shard(0), Shard(1)), (Shard(0), StridedShard(0, 2)))
    assert row_table(rows, 1) is row_table(again, 1)
    assert [entries.cuts for entries in row_table(rows, 1).inputs] == [((1, 1), (0, 2))]
    assert row_table(rows, 0) is not row_table(rows, 1)
