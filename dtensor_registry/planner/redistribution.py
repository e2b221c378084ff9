"""Which steps torch takes to move a tensor from one placement tuple to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    StridedShard,
)

Collective: TypeAlias = Literal[
    "allgather", "all_to_all", "allreduce", "reduce_scatter", "chunk", "partition", "impossible"
]
"""What a step does; `chunk` (R to S) and `partition` (R to P) are local and free."""


def collective_of(source: Placement, target: Placement) -> Collective:
    """Name what changes one placement into another on one mesh dim.

    Args:
        source: what the tensor has.
        target: what it shall have; not equal to `source`.

    Source: `_compute_placement_transition_cost` in
    torch.distributed.tensor._collective_utils.

    >>> collective_of(Partial("sum"), Shard(0)), collective_of(Shard(0), Partial("sum"))
    ('reduce_scatter', 'impossible')
    """
    if isinstance(source, Replicate):
        return "partition" if isinstance(target, Partial) else "chunk"
    if isinstance(target, Partial):
        return "impossible"
    gathers = isinstance(target, Replicate)
    if isinstance(source, Partial):
        return "allreduce" if gathers else "reduce_scatter"
    return "allgather" if gathers else "all_to_all"


@dataclass(frozen=True, slots=True)
class RedistributionStep:
    """One change of placement on one mesh dim, all other mesh dims staying as they are."""

    mesh_dim: int
    source: Placement
    target: Placement

    @property
    def collective(self) -> Collective:
        """Name the communication of this step."""
        return collective_of(self.source, self.target)

    def __str__(self) -> str:
        return f"{self.source} -> {self.target} on mesh dim {self.mesh_dim}"


def needs_torch(source: Placements, target: Placements) -> bool:
    """Say whether only torch itself can plan and price a move.

    That is so where a placement is strided, since torch then searches a graph of states or
    gives up with an infinite price, and where a partial knows more than its reduction,
    since two of those are compared by torch's own state. What placements do not show is
    for the caller to know: a shard order that is not the default one, sizes that are
    symbols, the planner that `use_min_cost_redistribution_plan` forces, and a rank outside
    the mesh, for which torch prices everything at 0.0.

    >>> needs_torch((StridedShard(0, 2),), (REPLICATE,))
    True
    """
    for placement in (*source, *target):
        if isinstance(placement, StridedShard):
            return True
        if isinstance(placement, Partial) and placement.native is not None:
            return True
    return False


def count_shards(placements: Placements, mesh_shape: tuple[int, ...]) -> int:
    """Count into how many pieces all sharded mesh dims together cut a tensor.

    >>> count_shards((Shard(0), REPLICATE, Shard(1)), (2, 3, 4))
    8
    """
    count = 1
    for placement, size in zip(placements, mesh_shape, strict=True):
        if isinstance(placement, Shard):
            count *= size
    return count


def steps(
    source: Placements, target: Placements, mesh_shape: tuple[int, ...]
) -> tuple[RedistributionStep, ...]:
    """Plan a move as torch's runtime does for tensors with the default shard order.

    Mesh dims that cut the same tensor dim nest, outer around inner. Going inside out, each
    mesh dim moves straight to its target, unless the target is a shard whose nesting
    further out is still to change: then it is replicated first, and cut again on the way
    back. A tensor that is in one piece has no nesting: its mesh dims change once, outside in.

    Args:
        source: what the tensor has, one placement per mesh dim; see `needs_torch`.
        target: what it shall have.
        mesh_shape: ranks on each mesh dim.

    Source: `generate_greedy_transform_infos` in torch.distributed.tensor._redistribute.

    >>> [str(s) for s in steps((Shard(0), Shard(0)), (REPLICATE, Shard(0)), (2, 2))]
    ['S(0) -> R on mesh dim 1', 'S(0) -> R on mesh dim 0', 'R -> S(0) on mesh dim 1']
    """
    plan: list[RedistributionStep] = []
    reached = source
    if count_shards(source, mesh_shape) > 1:
        reached = _unnested(source, target)
        for mesh_dim in reversed(range(len(source))):
            if source[mesh_dim] != reached[mesh_dim]:
                plan.append(RedistributionStep(mesh_dim, source[mesh_dim], reached[mesh_dim]))
    for mesh_dim in range(len(source)):
        if reached[mesh_dim] != target[mesh_dim]:
            plan.append(RedistributionStep(mesh_dim, reached[mesh_dim], target[mesh_dim]))
    return tuple(plan)


def _unnested(source: Placements, target: Placements) -> Placements:
    """Replace each target shard whose nesting changes further out by Replicate."""
    reached: list[Placement] = []
    changing: set[int] = set()
    for before, after in zip(source, target, strict=True):
        nested = isinstance(after, Shard) and after.tensor_dim in changing
        reached.append(REPLICATE if nested else after)
        if before != after:
            changing.update(p.tensor_dim for p in (before, after) if isinstance(p, Shard))
    return tuple(reached)
