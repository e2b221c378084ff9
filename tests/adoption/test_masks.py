"""A sharded embedding puts out a partial that holds a mask; each decision must have its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.nn import functional

import dtensor_registry as dr


def test_two_embeddings_alike_but_for_placements_can_wait_for_their_reduction(
    fake_ranks: None,
) -> None:
    mesh = init_device_mesh("cpu", (4, 2))

    def on_mesh(local: Tensor, *placements: Placement) -> DTensor:
        return DTensor.from_local(local, mesh, placements, run_check=False)

    table = on_mesh(torch.randn(5, 4), Replicate(), Shard(0))
    words = on_mesh(torch.tensor([0, 7, 2, 9]), Replicate(), Replicate())
    others = on_mesh(torch.tensor([9]), Shard(0), Replicate())

    with dr.install(dr.Settings(allowed=())):
        pending = [functional.embedding(tokens, table) for tokens in (words, others)]
        whole = [embedded.full_tensor() for embedded in pending]

    assert [tensor.shape for tensor in whole] == [(4, 4), (4, 4)]
