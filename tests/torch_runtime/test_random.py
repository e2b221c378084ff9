"""An op is random when a call of it draws, which a rule may say better than the op's tag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.errors import InvalidContributionError

R, S0 = Replicate(), Shard(0)
DRAWS = "draws random numbers; its output 0 would be replicated"


@torch.library.custom_op(
    "random_tests::drop", mutates_args=(), tags=[torch.Tag.nondeterministic_seeded]
)
def drop(x: torch.Tensor, p: float) -> torch.Tensor:
    """Draw numbers where p is more than 0 alone."""
    return x * (torch.rand_like(x) >= p)


@drop.register_fake
def _(x: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(x)


def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return [[S0, S0]]


@pytest.fixture
def mesh() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def on(mesh: Any, placement: Placement) -> DTensor:
    return DTensor.from_local(torch.ones(4), mesh, [placement])


def test_without_a_word_of_the_rule_the_tag_decides(mesh: Any) -> None:
    with dr.register_single_dim_strategy(drop)(rows):
        assert drop(on(mesh, S0), 0.0).placements == (S0,)
        with pytest.raises(RuntimeError, match=DRAWS):
            drop(on(mesh, R), 0.0)


def test_a_call_that_draws_nothing_may_be_replicated_and_one_that_draws_may_not(mesh: Any) -> None:
    with dr.register_single_dim_strategy(drop, random=lambda args, kwargs: args[1] > 0)(rows):
        for _ in range(2):  # a cached decision is of the same number
            assert drop(on(mesh, R), 0.0).placements == (R,)
            with pytest.raises(RuntimeError, match=DRAWS):
                drop(on(mesh, R), 0.5)
        assert drop(on(mesh, S0), 0.5).placements == (S0,)


def test_a_predicate_that_raises_is_the_rules_fault(mesh: Any) -> None:
    with dr.register_single_dim_strategy(drop, random=lambda args, kwargs: args[9])(rows):
        told = re.escape("its random() raised IndexError: tuple index out of range")
        with pytest.raises(RuntimeError, match=told):
            drop(on(mesh, S0), 0.5)


def test_what_cannot_be_called_is_no_predicate() -> None:
    with pytest.raises(InvalidContributionError, match="random is a bool; give a function"):
        dr.SingleDimStrategy(drop, rows, random=True)  # type: ignore[arg-type]
