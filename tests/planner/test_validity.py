"""What cannot become partial, and how much is said against a call."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry.placements import Placements, ShardingPlaceholder, parse_placements
from dtensor_registry.planner import (
    Grouped,
    Problem,
    TensorInput,
    Topology,
    grouped_dims,
    objection,
    objections,
)


def read(text: str) -> Any:
    return parse_placements(text)


def said(target: str, *sources: str, divisible: bool = True) -> str | None:
    """Ask what speaks against moving one input to a target."""
    inputs = (
        TensorInput((64, 64), ((read("R, R")),)),
        TensorInput((64, 64), tuple(map(read, sources)), divisible=divisible),
    )
    everywhere: Placements = read("R, R")
    topology = Topology.assumed((2, 2), devices_per_host=8)
    problem = Problem(topology, ((*everywhere, everywhere[0]),), 1, inputs)
    return objection(problem, [everywhere], [everywhere, read(target)])


INTEGERS = "input 1 has integers, which cannot be split into a P(sum)"
PRODUCT = "input 1 cannot be split into a P(product): torch splits into sum, avg, min and max only"


@pytest.mark.parametrize(
    ("source", "target", "divisible", "reason"),
    [
        ("R, R", "P(sum), R", True, None),
        ("R, R", "P(sum), R", False, INTEGERS),
        ("R, P(sum)", "R, P(sum)", False, None),
        ("R, P(sum)", "P(sum), P(sum)", False, INTEGERS),
        ("P(sum), S(0)", "P(sum), P(sum)", False, INTEGERS),
        # Torch prices it as impossible, whatever the numbers are.
        ("P(avg), R", "P(sum), R", False, None),
        ("R, R", "P(max), P(max)", False, None),
        ("R, R", "P(min), R", False, None),
        ("R, R", "P(avg), R", False, None),
        ("R, R", "P(product), R", True, PRODUCT),
        ("P(product), R", "P(product), R", True, None),
        ("R, R", "R, P(bxor)", False, PRODUCT.replace("product", "bxor")),
        ("R, R", "S(0), S(1)", False, None),
    ],
)
def test_what_is_whole_becomes_partial_only_as_torch_can_split_it(
    source: str, target: str, divisible: bool, reason: str | None
) -> None:
    assert said(target, source, divisible=divisible) == reason


@pytest.mark.parametrize(
    ("placements", "groups", "reason"),
    [
        ("S(0), R", 2, None),
        ("S(0), R", 3, "dim 0 holds 3 groups, which 2 ranks cannot share evenly"),
        ("S(0), S(0)", 8, None),
        ("S(0), S(0)", 6, "dim 0 holds 6 groups, which 4 ranks cannot share evenly"),
        ("S(0), S(1)", 6, None),
        ("S(1), S(1)", 1, None),
        ("P(sum), R", 1, None),
        ("_S(0, 2), S(0)", 4, None),
        ("S(0), _S(0, 2)", 8, None),
        (
            "S(0), _S(0, 2)",
            4,
            "dim 0 holds 4 groups, which 4 ranks cannot share evenly in 2 strides",
        ),
    ],
)
def test_no_group_of_an_input_or_output_may_be_cut(
    placements: str, groups: int, reason: str | None
) -> None:
    topology = Topology.assumed((2, 2), devices_per_host=8)
    x = TensorInput((64, 64), (read("R, R"),))
    for at, tensor in enumerate(("output 0", "output 1", "input 0", "input 1")):
        problem = Problem(topology, (), 2, (x, x), grouped=(Grouped(at, 0, groups),))
        others: list[Any] = [read("S(1), S(1)")] * 4
        tensors = [*others[:at], read(placements), *others[at + 1 :]]
        told = objection(problem, tensors[:2], tensors[2:])
        assert told == (reason and f"{tensor}: {reason}")
    masked = Problem(topology, (), 1, (x,), grouped=(Grouped(0, 0, 3),))
    assert objection(masked, [None], [read(placements.replace("P(sum)", "R"))]) is None


def test_of_a_dim_that_is_divided_differently_no_group_of_either_is_cut() -> None:
    x, y = (ShardingPlaceholder(1, groups) for groups in (8, 12))
    assert grouped_dims([[x, ShardingPlaceholder(1)], [y, x]]) == (
        Grouped(0, 1, 4),
        Grouped(1, 1, 8),
    )


def test_of_several_sources_one_that_can_be_split_is_enough() -> None:
    assert said("P(sum), R", "R, R", "P(sum), R", divisible=False) is None
    assert said("P(sum), R", "R, R", "S(0), R", divisible=False) == INTEGERS


def test_objections_stop_where_they_are_told_to() -> None:
    # All of them would be 2**64.
    x = TensorInput((1,), (read(", ".join("R" * 64)),))
    topology = Topology.assumed((2,) * 64, devices_per_host=8)
    problem = Problem(topology, (read("R, S(0)"), read("S(0), S(0)")), 1, (x,))
    found = objections(problem, at_most=3)
    assert len(found) == len(set(found)) == 3
    assert found[0].endswith("input 0: dim 0 cannot be sharded: 1 elements < 2 shards")
