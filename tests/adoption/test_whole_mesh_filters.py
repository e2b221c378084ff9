"""Choices that torch takes out for the whole mesh stay out."""

from __future__ import annotations

import torch
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.settings import Settings
from dtensor_registry_kit.simulation.mesh import simulated_mesh


def test_the_mean_of_uneven_pieces_is_what_torch_itself_makes_of_it() -> None:
    rows = torch.arange(30.0).reshape(6, 5)
    with simulated_mesh(4) as mesh:
        x = distribute_tensor(rows, mesh, [Shard(0)])
        bare = x.mean()
        with dr.install(Settings(allowed=())):
            adopted = x.mean()
        assert adopted.placements == bare.placements == (Replicate(),)
        assert adopted.full_tensor().item() == rows.mean().item()
