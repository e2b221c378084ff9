"""Prices and plans beside torch's own, to the last bit, on random moves.

2,400 moves by default; 100,000 with `DTENSOR_REGISTRY_LONG=1`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import Partial as TorchPartial
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor import _redistribute
from torch.distributed.tensor._collective_utils import MeshTopoInfo, redistribute_cost
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placement,
    Placements,
    Shard,
    StridedShard,
)
from dtensor_registry.planner import Topology, itemise, needs_torch, price, steps

LONG = os.environ.get("DTENSOR_REGISTRY_LONG") == "1"
MOVES_PER_MESH = 40
MESHES = 2_500 if LONG else 60
RANKS = 8**4


@pytest.fixture(scope="module", autouse=True)
def fake_group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()


@pytest.fixture
def devices_per_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Set how many devices torch believes a host to have."""

    def put(devices: int) -> None:
        monkeypatch.setattr(_mesh_resources, "num_devices_per_host", lambda _: devices)
        MeshTopoInfo.build_from_mesh.cache_clear()

    yield put
    MeshTopoInfo.build_from_mesh.cache_clear()


def mesh_of(mesh_shape: tuple[int, ...]) -> DeviceMesh:
    ranks = torch.arange(math.prod(mesh_shape)).view(mesh_shape)
    return DeviceMesh("cpu", ranks, _init_backend=False)


def torch_placement(placement: Placement) -> Any:
    if isinstance(placement, Shard):
        return TorchShard(placement.tensor_dim)
    return TorchPartial(placement.reduce_op) if isinstance(placement, Partial) else TorchReplicate()


def spec_of(mesh: DeviceMesh, placements: Placements, shape: tuple[int, ...]) -> DTensorSpec:
    # An item of one byte makes the product of the shape the bytes.
    meta = TensorMeta(torch.Size(shape), (1,) * len(shape), torch.int8)
    return DTensorSpec(mesh, tuple(map(torch_placement, placements)), tensor_meta=meta)


def topology_of(mesh: DeviceMesh) -> Topology:
    assumed = MeshTopoInfo.build_from_mesh(mesh)
    return Topology(
        tuple(assumed.mesh_dim_devices),
        tuple(assumed.mesh_dim_bandwidth),
        tuple(assumed.mesh_dim_latency),
    )


def forget_plans() -> None:
    # torch keeps every plan and planner for ever.
    _redistribute._gen_transform_infos.cache_clear()
    _redistribute.clear_redistribute_planner_cache()


def test_prices_plans_and_topologies_are_torchs_own_on_random_moves(
    draw: Any, devices_per_host: Callable[[int], None]
) -> None:
    seen: Counter[str] = Counter()
    for _ in range(MESHES):
        devices_per_host(draw.rng.choice((1, 4, 8, 64)))
        mesh_shape = draw.mesh_shape()
        mesh = mesh_of(mesh_shape)
        topology = topology_of(mesh)
        assert topology == Topology.assumed(mesh_shape, _mesh_resources.num_devices_per_host("cpu"))
        seen["two tiers"] += len(set(topology.latency)) == 2
        for _ in range(MOVES_PER_MESH):
            shape = draw.shape()
            source = draw.placements(len(shape), mesh_shape)
            target = draw.target(len(shape), source)
            before, after = spec_of(mesh, source, shape), spec_of(mesh, target, shape)

            theirs = redistribute_cost(before, after)
            ours = price(source, target, math.prod(shape), topology)
            assert ours == theirs, f"{source} -> {target} of {shape} on {topology}"

            plan = [
                (info.mesh_dim, *info.src_dst_placements)
                for info in _redistribute._gen_transform_infos_non_cached(before, after)
            ]
            assert plan == [
                (step.mesh_dim, torch_placement(step.source), torch_placement(step.target))
                for step in steps(source, target, mesh_shape)
            ]

            seen["impossible" if theirs == math.inf else "paid" if theirs else "free"] += 1
            for item in itemise(source, target, math.prod(shape), topology):
                seen[item.collective] += 1
        forget_plans()
    # The draw must reach every branch, or the equality above says less than it seems to.
    few = [
        kind
        for kind in (
            *("two tiers", "impossible", "paid", "free"),
            *("allgather", "all_to_all", "allreduce", "reduce_scatter", "chunk", "partition"),
        )
        if seen[kind] < 10
    ]
    assert not few, seen


def test_whole_item_sizes_count_as_bytes() -> None:
    mesh = mesh_of((2, 3))
    meta = TensorMeta(torch.Size((5, 7)), (7, 1), torch.float64)
    source, target = (Shard(0), Shard(1)), (REPLICATE, REPLICATE)
    before, after = (
        DTensorSpec(mesh, tuple(map(torch_placement, placements)), tensor_meta=meta)
        for placements in (source, target)
    )
    assert price(source, target, 5 * 7 * 8, topology_of(mesh)) == redistribute_cost(before, after)
    forget_plans()


def test_a_strided_shard_is_priced_otherwise_by_torch_so_torch_must_be_asked() -> None:
    mesh = mesh_of((4,))
    meta = TensorMeta(torch.Size((16,)), (1,), torch.float32)
    strided = DTensorSpec(mesh, (_StridedShard(0, split_factor=2),), tensor_meta=meta)
    whole = DTensorSpec(mesh, (TorchReplicate(),), tensor_meta=meta)
    assert redistribute_cost(strided, whole) == math.inf
    assert needs_torch((StridedShard(0, 2),), (REPLICATE,))
    forget_plans()
