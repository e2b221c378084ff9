"""What a bill says: bytes, microseconds, and that it adds up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dtensor_registry.errors import SettingsError
from dtensor_registry.placements import REPLICATE, Partial, Shard
from dtensor_registry.planner import Topology, itemise, price

GIB = 2**30
TOPOLOGY = Topology((4, 2), bandwidth=(100.0, 50.0), latency=(1.0, 0.5))


def test_items_name_the_collective_its_bytes_and_its_price() -> None:
    bill = itemise((Shard(0), Partial()), (REPLICATE, Shard(1)), 8 * GIB, TOPOLOGY)
    assert [(item.collective, item.nbytes / GIB) for item in bill] == [
        ("reduce_scatter", 2.0),  # what each rank has, before it is halved
        ("allgather", 4.0),  # what each rank has in the end
    ]
    assert [item.microseconds for item in bill] == [
        pytest.approx(6.6 + 1 * 0.5 + 1e6 * 2 * 1 / 2 / 50),
        pytest.approx(6.6 + 3 * 1.0 + 1e6 * 4 * 3 / 4 / 100),
    ]


def test_an_allreduce_passes_twice_and_an_all_to_all_carries_the_penalty() -> None:
    reduce = price((Partial(), REPLICATE), (REPLICATE, REPLICATE), 4 * GIB, TOPOLOGY)
    assert reduce == pytest.approx(6.6 + 6.0 + 60_000.0)
    swap = price((Shard(0), REPLICATE), (Shard(1), REPLICATE), 4 * GIB, TOPOLOGY)
    assert swap == pytest.approx(6.6 + 3.0 + 7_500.0 + 1.0)


def test_nothing_follows_an_impossible_step() -> None:
    bill = itemise((Shard(0), Shard(1)), (REPLICATE, Partial()), GIB, TOPOLOGY)
    assert [(item.collective, item.microseconds) for item in bill] == [("impossible", math.inf)]


def test_local_steps_cost_nothing_and_are_on_the_bill() -> None:
    bill = itemise((REPLICATE, REPLICATE), (Shard(0), Partial()), GIB, TOPOLOGY)
    assert [(item.collective, item.microseconds) for item in bill] == [
        ("chunk", 0.0),
        ("partition", 0.0),
    ]


def test_a_bill_adds_up_to_the_price_in_the_order_of_its_items(draw: Any) -> None:
    for _ in range(500):
        mesh_shape, shape = draw.mesh_shape(), draw.shape()
        topology = Topology.assumed(mesh_shape, devices_per_host=8)
        source = draw.placements(len(shape), mesh_shape)
        target = draw.target(len(shape), source)
        nbytes = draw.nbytes(shape)
        total = 0.0
        for item in itemise(source, target, nbytes, topology):
            total += item.microseconds
        assert total == price(source, target, nbytes, topology)


def test_an_inner_mesh_dim_is_inside_the_host_as_long_as_it_fits() -> None:
    topology = Topology.assumed((2, 2, 4), devices_per_host=8)
    assert topology.latency == (2.7, 0.6, 0.6)
    assert topology.bandwidth == (87.7 * 0.22, 87.7, 87.7)


@pytest.mark.parametrize(
    ("bandwidth", "latency", "message"),
    [
        ((1.0,), (1.0, 1.0), "a topology of 2 mesh dims has 1 bandwidths and 2 latencies"),
        ((1.0, 0.0), (1.0, 1.0), "mesh dim 1 of a topology has size 4, bandwidth 0.0 GiB/s"),
        ((1.0, math.nan), (1.0, 1.0), "mesh dim 1 of a topology has size 4, bandwidth nan GiB/s"),
        ((1.0, 1.0), (-1.0, 1.0), "mesh dim 0 of a topology has size 2, bandwidth 1.0 GiB/s"),
    ],
)
def test_a_topology_that_prices_nothing_is_refused(
    bandwidth: tuple[float, ...], latency: tuple[float, ...], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        Topology((2, 4), bandwidth, latency)
