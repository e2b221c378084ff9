"""What torch believes a redistribution costs, for one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import _redistribute, placement_types
from torch.distributed.tensor._collective_utils import MeshTopoInfo, redistribute_cost
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from dtensor_registry.placements import Partial, Placements, Replicate, Shard
from dtensor_registry.planner import Ask, Price, Topology, needs_torch, price, splits
from dtensor_registry.settings import LinkSettings
from dtensor_registry.torch_runtime.conversion import (
    placements_from_torch,
    placements_to_torch,
)

_SHARDS_BECOME_SUMS = hasattr(placement_types.Shard, "_to_partial_tensor")

_links: dict[str, LinkSettings] = {}
"""What the user says of mesh dims, by name or number."""


def assume(links: Mapping[str, LinkSettings]) -> None:
    """Take other bandwidths and latencies than torch's for some mesh dims, from now on.

    Moves that only torch can price (strided shards, another shard order) keep torch's.

    Args:
        links: by name of the mesh dim, or by its number from the outermost.
    """
    if links != _links:
        _links.clear()
        _links.update(links)
        topology_of.cache_clear()


@lru_cache(maxsize=256)
def topology_of(mesh: DeviceMesh) -> Topology:
    """Read bandwidth and latency of each mesh dim: the user's, else what torch assumes."""
    topo = MeshTopoInfo.build_from_mesh(mesh)
    bandwidth, latency = list(topo.mesh_dim_bandwidth), list(topo.mesh_dim_latency)
    for mesh_dim, name in enumerate(mesh.mesh_dim_names or [""] * mesh.ndim):
        link = _links.get(name) or _links.get(str(mesh_dim))
        if link is not None and link.bandwidth is not None:
            bandwidth[mesh_dim] = link.bandwidth
        if link is not None and link.latency is not None:
            latency[mesh_dim] = link.latency
    return Topology(tuple(topo.mesh_dim_devices), tuple(bandwidth), tuple(latency))


def pricer(mesh: DeviceMesh, inputs: Sequence[Sequence[DTensorSpec]]) -> Price:
    """Make the price function of one call; every price is computed once.

    The pure price is used wherever it is torch's own to the bit, torch itself elsewhere.

    Args:
        mesh: the mesh of the call.
        inputs: for each input, the specs that it may come with.
    """
    topology = topology_of(mesh)
    known: dict[tuple[int, Placements], tuple[float, ...]] = {}

    def price_of(position: int, target: Placements) -> tuple[float, ...]:
        key = (position, target)
        if key not in known:
            known[key] = tuple(_cost(spec, target, topology) for spec in inputs[position])
        return known[key]

    return price_of


def asker(inputs: Sequence[Sequence[DTensorSpec]]) -> Ask:
    """Make what prices the moves that only torch can price, for inputs with one spec each.

    Args:
        inputs: for each input, its spec.
    """

    def ask(position: int, target: Placements) -> float:
        (spec,) = inputs[position]
        return _torchs_cost(spec, target)

    return ask


def can_move(source: Placements, target: Placements) -> bool:
    """Say whether torch can bring a tensor from one place to another, at whatever price.

    Only a whole tensor can become partial. From 2.14.1 on torch also turns a plain shard into a
    pending sum, but never chooses to: it calls the price infinite.

    Source: `redistribute_local_tensor` in torch.distributed.tensor._redistribute.
    """
    return all(
        before == after
        or not isinstance(after, Partial)
        or isinstance(before, Replicate)
        or (_SHARDS_BECOME_SUMS and isinstance(before, Shard) and after == Partial("sum"))
        for before, after in zip(source, target, strict=True)
    )


def torch_plans_otherwise(spec: DTensorSpec) -> bool:
    """Say whether torch's runtime would not take its greedy plan from here."""
    if _redistribute._FORCE_MIN_COST_REDISTRIBUTION_PLAN:
        return True
    return spec.shard_order is None or not DTensorSpec.is_default_device_order(spec.shard_order)


def is_divisible(spec: DTensorSpec) -> bool:
    """Say whether a tensor's numbers can be divided; those of integers and bools cannot."""
    meta: Any = spec.tensor_meta
    return bool(meta.dtype.is_floating_point or meta.dtype.is_complex)


def nbytes_of(spec: DTensorSpec) -> int:
    """Count the bytes of the whole tensor."""
    meta: Any = spec.tensor_meta
    return int(meta.dtype.itemsize * math.prod(meta.shape))


def _cost(spec: DTensorSpec, target: Placements, topology: Topology) -> float:
    source = placements_from_torch(spec.placements)
    if source == target:
        return 0.0  # the spec itself is kept, whatever its shard order
    if not all(splits(b, a, is_divisible(spec)) for b, a in zip(source, target, strict=True)):
        return math.inf
    if needs_torch(source, target) or torch_plans_otherwise(spec):
        return _torchs_cost(spec, target)
    return price(source, target, nbytes_of(spec), topology)


def _torchs_cost(spec: DTensorSpec, target: Placements) -> float:
    wanted = DTensorSpec(spec.mesh, placements_to_torch(target), tensor_meta=spec.tensor_meta)
    return float(redistribute_cost(spec, wanted))
