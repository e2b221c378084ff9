"""What a move costs: torch's formulas, step by step, in torch's own order of operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dtensor_registry.placements import Placements
from dtensor_registry.planner.redistribution import (
    Collective,
    RedistributionStep,
    count_shards,
    steps,
)
from dtensor_registry.planner.topology import Topology

_GIB = 1024**3
_START_LATENCY = 6.6
_ALL_TO_ALL_PENALTY = 1.0  # torch prices an all_to_all as an allgather, and a little more


class Rate(NamedTuple):
    """What one collective over one mesh dim costs, by the bytes that it moves.

    Attributes:
        collective: the communication.
        size: ranks on the mesh dim.
        bandwidth: GiB/s on the mesh dim.
        latency: microseconds, whatever the bytes.
        hops: how often a piece is passed on around the ring.
        penalty: microseconds on top.
        grows: by how much each rank's bytes grow in the collective, which then moves as many.
        shrinks: by how much each rank's bytes shrink in it.
        factor: what it leaves of each rank's bytes; the last three give bounds, not prices.
        fixed: microseconds without bytes.
        per_gib: microseconds for each 2**30 bytes that a rank holds before.
    """

    collective: Collective
    size: int
    bandwidth: float
    latency: float
    hops: int
    penalty: float
    grows: int
    shrinks: int
    factor: float
    fixed: float
    per_gib: float

    def microseconds(self, gib: float) -> float:
        """Price the collective for the bytes on its larger side.

        Source: `allgather_cost`, `allreduce_cost` and `reduce_scatter_cost` in
        torch.distributed.tensor._collective_utils: the same operations in the same order.
        """
        seconds = (gib * self.hops / self.size) / self.bandwidth
        return self.latency + seconds * 1e6 + self.penalty


@lru_cache(maxsize=4096)
def rate(collective: Collective, size: int, bandwidth: float, latency: float) -> Rate:
    """Look up what a collective costs on a mesh dim.

    Args:
        collective: the communication, or a local or impossible step.
        size: ranks on the mesh dim.
        bandwidth: GiB/s.
        latency: microseconds for each hop.

    >>> rate("allreduce", 4, 100.0, 1.0).microseconds(0.0)
    12.6
    """
    hops, start, penalty = size - 1, _START_LATENCY, 0.0
    grows = size if collective == "allgather" else 1
    shrinks = size if collective in ("chunk", "reduce_scatter") else 1
    if collective in ("chunk", "partition"):
        hops, start = 0, 0.0
    elif collective == "impossible":
        hops, start = 0, math.inf
    elif collective == "allreduce":
        hops = 2 * (size - 1)
    elif collective == "all_to_all":
        penalty = _ALL_TO_ALL_PENALTY
    start += hops * latency
    return Rate(
        collective=collective,
        size=size,
        bandwidth=bandwidth,
        latency=start,
        hops=hops,
        penalty=penalty,
        grows=grows,
        shrinks=shrinks,
        factor=grows / shrinks,
        fixed=start + penalty,
        per_gib=grows * hops / size / bandwidth * 1e6,
    )


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of a move and its price.

    Attributes:
        step: the change of placement.
        collective: the communication it takes.
        nbytes: bytes that a rank holds on the larger side of the step, before padding.
        microseconds: the price; 0.0 for a local step, infinite for an impossible one.
    """

    step: RedistributionStep
    collective: Collective
    nbytes: float
    microseconds: float


def itemise(
    source: Placements, target: Placements, nbytes: int, topology: Topology
) -> tuple[StepCost, ...]:
    """Price every step of a move; nothing follows an impossible step.

    Args:
        source: what the tensor has, one placement per mesh dim; see `needs_torch`.
        target: what it shall have.
        nbytes: bytes of the whole tensor, item size times the product of its global shape.
        topology: the mesh and its links.

    Source: `redistribute_cost` in torch.distributed.tensor._collective_utils.

    >>> from dtensor_registry.placements import REPLICATE, Shard
    >>> topology = Topology((4,), bandwidth=(100.0,), latency=(1.0,))
    >>> [(c.collective, c.nbytes) for c in itemise((Shard(0),), (REPLICATE,), 4096, topology)]
    [('allgather', 4096.0)]
    """
    items: list[StepCost] = []
    links = topology.links
    gib = local_gib(source, nbytes, topology)
    for step in steps(source, target, topology.mesh_shape):
        one = rate(step.collective, *links[step.mesh_dim])
        gib *= one.grows
        microseconds = one.microseconds(gib)
        items.append(StepCost(step, one.collective, gib * _GIB, microseconds))
        if microseconds == math.inf:
            break
        gib /= one.shrinks
    return tuple(items)


def local_gib(source: Placements, nbytes: int, topology: Topology) -> float:
    """Say what each rank holds, in units of 2**30 bytes, as if every cut were even.

    >>> from dtensor_registry.placements import Shard
    >>> local_gib((Shard(0),), 2**32, Topology.assumed((4,), devices_per_host=8))
    1.0
    """
    return nbytes / count_shards(source, topology.mesh_shape) / 1024 / 1024 / 1024


def price(source: Placements, target: Placements, nbytes: int, topology: Topology) -> float:
    """Price moving one tensor, in microseconds: bit for bit what torch's own estimate is.

    Equal to the last bit, so that what ties for torch ties here. Infinite where torch calls
    the move impossible: from a shard, or from another kind of partial, to a partial.

    Args:
        source: what the tensor has, one placement per mesh dim; see `needs_torch`.
        target: what it shall have.
        nbytes: bytes of the whole tensor.
        topology: the mesh and its links.

    >>> from dtensor_registry.placements import REPLICATE, Shard
    >>> price((REPLICATE,), (Shard(0),), 4096, Topology.assumed((4,), devices_per_host=8))
    0.0
    """
    total = 0.0
    # Not sum(): from Python 3.12 on it rounds otherwise than adding one by one.
    for item in itemise(source, target, nbytes, topology):
        total += item.microseconds
    return total
