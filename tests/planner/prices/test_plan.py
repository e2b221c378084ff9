"""The plan of a move, step by step, and who has to make it."""

from __future__ import annotations

import pytest

from dtensor_registry.placements import Partial, Placements, Shard, StridedShard, parse_placements
from dtensor_registry.planner import needs_torch, steps


def placements(text: str) -> Placements:
    return parse_placements(text)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("mesh_shape", "source", "target", "plan"),
    [
        # One mesh dim: straight there.
        ((4,), "S(0)", "S(0)", []),
        ((4,), "S(0)", "R", ["0: S(0) -> R allgather"]),
        ((4,), "S(0)", "S(1)", ["0: S(0) -> S(1) all_to_all"]),
        ((4,), "P", "R", ["0: P(sum) -> R allreduce"]),
        ((4,), "P", "S(0)", ["0: P(sum) -> S(0) reduce_scatter"]),
        ((4,), "R", "S(0)", ["0: R -> S(0) chunk"]),
        ((4,), "R", "P(avg)", ["0: R -> P(avg) partition"]),
        ((4,), "S(0)", "P", ["0: S(0) -> P(sum) impossible"]),
        ((4,), "P(max)", "P", ["0: P(max) -> P(sum) impossible"]),
        # Not nested: inside out.
        ((2, 2), "S(0), S(1)", "R, R", ["1: S(1) -> R allgather", "0: S(0) -> R allgather"]),
        # The inner cut stays, but what it nests in changes: it goes and comes back.
        (
            (2, 2),
            "S(0), S(0)",
            "R, S(0)",
            ["1: S(0) -> R allgather", "0: S(0) -> R allgather", "1: R -> S(0) chunk"],
        ),
        # The outer cut of the inner target's tensor dim appears first.
        (
            (2, 2),
            "R, S(1)",
            "S(1), S(1)",
            ["1: S(1) -> R allgather", "0: R -> S(1) chunk", "1: R -> S(1) chunk"],
        ),
        # Another tensor dim's nesting is no concern.
        ((2, 2), "S(0), S(1)", "R, S(1)", ["0: S(0) -> R allgather"]),
        # In one piece: outside in, also where a cut over a single rank is only a name.
        (
            (2, 2),
            "P, P",
            "R, S(0)",
            ["0: P(sum) -> R allreduce", "1: P(sum) -> S(0) reduce_scatter"],
        ),
        (
            (1, 2),
            "S(0), P",
            "R, S(0)",
            ["0: S(0) -> R allgather", "1: P(sum) -> S(0) reduce_scatter"],
        ),
    ],
)
def test_a_move_takes_these_steps(
    mesh_shape: tuple[int, ...], source: str, target: str, plan: list[str]
) -> None:
    taken = steps(placements(source), placements(target), mesh_shape)
    assert [f"{s.mesh_dim}: {s.source} -> {s.target} {s.collective}" for s in taken] == plan


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((Shard(0),), (Partial("max"),), False),
        ((StridedShard(0, 2),), (Shard(0),), True),
        ((Shard(0),), (StridedShard(0, 2),), True),
        ((Partial("sum", native="a masked embedding"),), (Shard(0),), True),
        ((Shard(0), Partial("sum", native="a norm")), (Shard(0), Shard(1)), True),
    ],
)
def test_only_strided_shards_and_opaque_partials_need_torch(
    source: Placements, target: Placements, expected: bool
) -> None:
    assert needs_torch(source, target) is expected
