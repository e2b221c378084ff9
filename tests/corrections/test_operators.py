"""Operators whose names end with underscores: bare torch gives the operand back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard

import dtensor_registry as dr
from dtensor_registry.placements import Shard as Cut
from dtensor_registry_kit.pytest_plugin.only import only
from dtensor_registry_kit.simulation.mesh import of_pieces, on_every_rank

NUMBERS = torch.tensor([[1, 2], [3, 12]])


@pytest.mark.parametrize("apply", [operator.lshift, operator.rshift])
def test_a_shift_is_not_the_operand_itself(local_mesh: Any, apply: Callable[..., Any]) -> None:
    mesh = local_mesh(2)
    cut = of_pieces([NUMBERS[:1], NUMBERS[1:]], NUMBERS, (Cut(0),), mesh)
    wanted = apply(NUMBERS, 1)
    assert on_every_rank(apply(cut, 1).full_tensor())[0].tolist() == NUMBERS.tolist()  # bare torch
    with dr.install(only("dtensor-registry-corrections")):
        shifted = apply(cut, 1)
        assert shifted.placements == (Shard(0),)
        assert on_every_rank(shifted.full_tensor())[0].tolist() == wanted.tolist()
