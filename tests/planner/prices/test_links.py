"""The user's own bandwidths and latencies: they change what is cheapest and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.errors import SettingsError
from dtensor_registry.settings import read_settings
from dtensor_registry.torch_runtime.move_prices import topology_of

SLOW = {"bandwidth": 0.001}


@pytest.fixture
def mesh() -> Any:
    torch.distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.distributed.destroy_process_group()


def product(mesh: Any, **links: Any) -> str:
    """Multiply two matrices whose every placement would have to change somewhere."""
    with dr.install(allowed=(), links=links):
        x = distribute_tensor(torch.ones(64, 64), mesh, [Shard(0), Shard(0)])
        y = distribute_tensor(torch.ones(64, 64), mesh, [Shard(1), Shard(1)])
        return str((x @ y).placements)


def test_a_slow_mesh_dim_changes_the_choice_and_is_forgotten_afterwards(mesh: Any) -> None:
    usual = product(mesh)
    assert product(mesh, dp=SLOW) != usual
    assert product(mesh) == usual


def test_a_mesh_dim_is_named_by_name_or_by_number(mesh: Any) -> None:
    assumed = topology_of(mesh)
    with dr.install(allowed=(), links={"dp": {"bandwidth": 5.0}, "1": {"latency": 9.0}}):
        told = topology_of(mesh)
    assert told.bandwidth == (5.0, assumed.bandwidth[1])
    assert told.latency == (assumed.latency[0], 9.0)
    assert topology_of(mesh) == assumed


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ({"bandwidth": 0}, "links.tp.bandwidth = 0: Input should be greater than 0"),
        ({"latency": -1}, "links.tp.latency = -1: Input should be greater than or equal to 0"),
        ({"bandwith": 1}, "links.tp.bandwith is no setting; did you mean 'bandwidth'?"),
    ],
)
def test_a_link_that_prices_nothing_is_refused(link: Any, told: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_settings(links={"tp": link})
    assert str(error.value) == told
