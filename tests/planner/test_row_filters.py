"""Which combinations of rows are valid, filter by filter, and how rows are filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placement,
    Placements,
    Shard,
    ShardingPlaceholder,
    StridedShard,
    parse_placements,
    show_placements,
)
from dtensor_registry.planner import (
    Problem,
    Row,
    TensorInput,
    Topology,
    candidates,
    fill_rows,
    objections,
)


def read(text: str) -> Any:
    return parse_placements(text)


def tensor(shape: tuple[int, ...], *sources: str, pinned: str | None = None) -> TensorInput:
    return TensorInput(shape, tuple(map(read, sources)), pinned)


def problem(
    mesh_shape: tuple[int, ...], rows: Sequence[str], inputs: Sequence[TensorInput], **more: Any
) -> Problem:
    read_rows = tuple(read(row) for row in rows)
    topology = Topology.assumed(mesh_shape, devices_per_host=8)
    return Problem(topology, read_rows, len(read_rows[0]) - len(inputs), tuple(inputs), **more)


def free(position: int, target: Placements) -> tuple[float, ...]:
    return (0.0,)


def valid(question: Problem) -> list[str]:
    """Show the inputs of every valid candidate."""
    return [
        " | ".join(show_placements(placements) for placements in candidate.inputs)
        for candidate in candidates(question, free)
    ]


@pytest.mark.parametrize(
    ("shape", "mesh_shape", "inputs"),
    [
        ((2,), (2,), ["R", "S(0)"]),
        ((1,), (2,), ["R"]),
        ((0,), (2,), ["R"]),
        ((3,), (2,), ["R", "S(0)"]),  # uneven, but every rank has an element
        ((4,), (2, 2), ["R, R", "R, S(0)", "S(0), R", "S(0), S(0)"]),
        ((3,), (2, 2), ["R, R", "R, S(0)", "S(0), R"]),  # 4 shards in all
        ((2,), (2, 3), ["R, R", "S(0), R"]),
        ((2,), (1, 2), ["R, R", "R, S(0)", "S(0), R", "S(0), S(0)"]),
    ],
)
def test_shards_of_one_dim_multiply_over_all_mesh_dims(
    shape: tuple[int, ...], mesh_shape: tuple[int, ...], inputs: list[str]
) -> None:
    source = show_placements([REPLICATE] * len(mesh_shape))
    question = problem(mesh_shape, ["R, R", "S(0), S(0)"], [tensor(shape, source)])
    assert valid(question) == inputs


def test_a_strided_shard_counts_the_groups_it_was_split_into() -> None:
    rows = ["R, R", "_S(0, 3), _S(0, 3)"]
    assert valid(problem((2,), rows, [tensor((5,), "R")])) == ["R"]
    assert valid(problem((2,), rows, [tensor((6,), "R")])) == ["R", "_S(0, 3)"]


def test_outputs_may_be_cut_into_more_pieces_than_they_have_elements() -> None:
    # Their shapes are not the rule's to know; torch gives such ranks an empty local tensor.
    assert valid(problem((4,), ["S(0), R"], [tensor((1,), "R")])) == ["R"]


def test_uneven_sharding_that_is_allowed_keeps_an_input_that_stays_as_it_is() -> None:
    rows = ["R, R, R", "S(0), S(0), S(0)"]
    inputs = [tensor((1,), "S(0)"), tensor((1,), "R")]
    assert valid(problem((2,), rows, inputs, allow_uneven_sharding=True)) == ["R | R"]
    inputs = [tensor((1,), "S(0)"), tensor((1,), "S(0)")]
    assert valid(problem((2,), rows, inputs, allow_uneven_sharding=True)) == [
        "R | R",
        "S(0) | S(0)",
    ]
    assert valid(problem((2,), rows, inputs)) == ["R | R"]


@pytest.mark.parametrize(
    ("first", "second", "mix"),
    [
        ("P(sum)", "P(sum)", True),
        ("P(sum)", "P(avg)", True),
        ("P(sum)", "P(max)", False),
        ("P(max)", "P(min)", False),
        ("P(avg)", "P(product)", False),
    ],
)
@pytest.mark.parametrize("place", ["output", "input"])
def test_kinds_of_partial_mix_on_one_tensor_only_if_they_commute(
    first: str, second: str, mix: bool, place: str
) -> None:
    rows = [f"{p}, R" if place == "output" else f"R, {p}" for p in (first, second)]
    # Not from a whole tensor: torch cannot split one into a product.
    question = problem((2, 2), rows, [tensor((8,), f"{first}, {second}")])
    combinations = {candidate.rows for candidate in candidates(question, free)}
    assert ((0, 1) in combinations) == mix
    assert {(0, 0), (1, 1)} <= combinations


def test_two_partials_of_torchs_own_kinds_mix_with_nothing_but_themselves() -> None:
    masked, other = Partial("sum", native="mask 1"), Partial("sum", native="mask 2")
    rows: tuple[Row, ...] = ((masked, REPLICATE), (other, REPLICATE), (Partial("sum"), REPLICATE))
    question = Problem(Topology.assumed((2, 2), 8), rows, 1, (tensor((8,), "R, R"),))
    assert [c.rows for c in candidates(question, free)] == [(0, 0), (1, 1), (2, 2)]


def test_a_pinned_input_keeps_its_placement() -> None:
    rows = ["R, R, R", "S(0), S(0), S(0)", "S(1), S(1), S(1)"]
    inputs = [tensor((8, 8), "S(1)", pinned="what the op writes to"), tensor((8, 8), "S(0)")]
    assert valid(problem((2,), rows, inputs)) == ["S(1) | S(1)"]


def test_an_output_that_is_the_very_input_has_its_placement() -> None:
    rows = ["R, R", "S(0), R", "S(0), S(0)"]
    question = problem((2,), rows, [tensor((8,), "S(0)")], ties=((0, 0),))
    assert [c.outputs for c in candidates(question, free)] == [((Shard(0),),)] * 2


def test_a_tie_says_nothing_of_an_output_that_is_no_tensor_in_this_call() -> None:
    rows: tuple[Row, ...] = ((None, REPLICATE),)
    question = Problem(Topology.assumed((2,), 8), rows, 1, (tensor((8,), "S(0)"),), ties=((0, 0),))
    assert [c.outputs for c in candidates(question, free)] == [(None,)]


def test_every_objection_names_the_combination_and_the_reason() -> None:
    rows = ["R, R, R", "S(0), S(0), R", "P(max), R, R"]
    inputs = [tensor((3, 1), "R, R", pinned="'x', which the op writes to,"), tensor((4,), "R, R")]
    assert objections(problem((2, 2), rows, inputs, ties=((0, 0),)))[:4] == (
        "(R, S(0)) <- (R, S(0)), (R, R): input 0 is 'x', which the op writes to, and must stay"
        " (R, R), not become (R, S(0))",
        "(R, P(max)) <- (R, R), (R, R): output 0 is input 0 itself and must be (R, R)",
        "(S(0), R) <- (S(0), R), (R, R): input 0 is 'x', which the op writes to, and must stay"
        " (R, R), not become (S(0), R)",
        "(S(0), S(0)) <- (S(0), S(0)), (R, R): input 0 is 'x', which the op writes to, and must"
        " stay (R, R), not become (S(0), S(0))",
    )


@pytest.mark.parametrize(
    ("rows", "inputs", "reason"),
    [
        (["R, S(0)"], [tensor((3,), "R, R")], "input 0: dim 0 cannot be sharded: 3 elements < 4"),
        (["R, S(1)"], [tensor((3,), "R, R")], "input 0: there is no dim 1 in shape (3,)"),
    ],
)
def test_an_unshardable_dim_is_told_in_numbers(
    rows: list[str], inputs: list[TensorInput], reason: str
) -> None:
    assert reason in objections(problem((2, 2), rows, inputs))[0]


def filled(rows: Sequence[Sequence[Any]], *sources: str, masked: Sequence[int] = ()) -> list[str]:
    inputs = [tensor((64, 64), source) for source in sources]
    outputs = len(rows[0]) - len(inputs) if rows else 1
    return [show_placements(row) for row in fill_rows(rows, outputs, inputs, masked)]


D0 = ShardingPlaceholder(0)


def test_a_placeholder_is_filled_with_each_kind_the_inputs_have_plain_first() -> None:
    rows: list[list[Any]] = [[D0, D0, REPLICATE]]
    expected = ["R, R, R", "S(0), S(0), R", "_S(0, 2), _S(0, 2), R", "_S(0, 4), _S(0, 4), R"]
    # The order of the inputs, or of their placements, plays no part.
    assert filled(rows, "_S(1, 4), R", "_S(0, 2), S(0)") == expected
    assert filled(rows, "S(1), _S(0, 2)", "R, _S(0, 4)") == expected


def test_a_placeholder_without_any_sharded_input_gives_no_row() -> None:
    assert filled([[D0, D0]], "R") == ["R, R"]


def test_a_placeholder_is_filled_with_the_kinds_of_every_source_of_an_input() -> None:
    both = TensorInput((8,), ((StridedShard(0, 2),), (Shard(0),)))
    rows = fill_rows([[D0, D0]], 1, [both])
    assert [show_placements(row) for row in rows] == ["R, R", "S(0), S(0)", "_S(0, 2), _S(0, 2)"]


def test_the_all_replicate_row_is_added_first_unless_the_rule_has_it() -> None:
    assert filled([[Shard(0), Shard(0)]], "S(0)") == ["R, R", "S(0), S(0)"]
    rows: list[list[Placement]] = [[Shard(0), Shard(0)], [REPLICATE, REPLICATE]]
    assert filled(rows, "S(0)") == ["S(0), S(0)", "R, R"]
    assert filled([], "S(0)") == ["R, R"]


def test_rows_that_come_out_equal_are_kept_once_where_they_first_stood() -> None:
    rows: list[list[Any]] = [[D0, D0], [Shard(1), Shard(1)], [Shard(0), Shard(0)], [D0, D0]]
    assert filled(rows, "S(0)") == ["R, R", "S(0), S(0)", "S(1), S(1)"]


def test_an_output_that_is_masked_off_has_no_placement_in_any_row() -> None:
    rows: list[list[Any]] = [[D0, Partial(), D0], [Shard(0), REPLICATE, Shard(0)]]
    assert filled(rows, "S(0)", masked=[1]) == ["R, -, R", "S(0), -, S(0)"]
    assert filled([[REPLICATE, D0, REPLICATE]], "S(0)", masked=[1]) == ["R, -, R"]
