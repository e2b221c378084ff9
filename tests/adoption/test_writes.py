"""Ops over lists that write in place: a write must never go to a moved copy, silently."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import dtensor_registry as dr


def test_what_is_written_to_stays_and_the_other_operand_moves(fake_ranks: None) -> None:
    mesh = init_device_mesh("cpu", (8,))
    x = DTensor.from_local(torch.ones(16, 4), mesh, [Replicate()], run_check=False)
    y = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)

    with dr.install(dr.Settings(allowed=())):
        torch._foreach_add_([x], [y])  # to cut x would cost nothing, to gather y does

    assert x.placements == (Replicate(),)
    assert torch.equal(x.to_local()[:2], torch.full((2, 4), 2.0))


def test_what_is_written_to_is_refused_where_only_a_move_would_do(fake_ranks: None) -> None:
    mesh = init_device_mesh("cpu", (8,))
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Partial()], run_check=False)

    with (
        dr.install(dr.Settings(allowed=())),
        pytest.raises(RuntimeError, match="in-place operations that require placement changes"),
    ):
        torch._foreach_exp_([x])

    assert torch.equal(x.to_local(), torch.ones(2, 4))
