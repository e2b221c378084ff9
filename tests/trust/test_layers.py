"""A fallback is for ops without a rule: any rule of any layer goes before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr

S0, R = (Shard(0),), (Replicate(),)
FALLBACK = """\
from dtensor_registry import FallbackStrategy, hookimpl

@hookimpl
def provide_fallback():
    return [FallbackStrategy("gather", lambda op, args, kwargs: [])]
"""


@torch.library.custom_op("trust_layers::shift", mutates_args=())
def shift(x: Tensor) -> Tensor:
    return x + 1


@shift.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


@pytest.fixture
def fallback(fake_distribution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_distribution("acme-fallback", FALLBACK)
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-fallback"]')
    monkeypatch.setenv("DTENSOR_REGISTRY_FALLBACK__MODE", "silent")


def test_a_rule_that_is_registered_within_a_context_replaces_the_contexts_fallback(
    fallback: None, x: Any
) -> None:
    with dr.implicit_strategy_context():
        assert shift(x).placements == R
        with dr.register_single_dim_strategy(shift)(
            lambda o, a, k: [[dr.ShardingPlaceholder(0)] * 2]
        ):
            assert shift(x).placements == S0
        assert shift(x).placements == R


def test_a_rule_below_replaces_a_fallback_above_that_was_bound_before(
    fallback: None, x: Any
) -> None:
    with dr.install(), dr.implicit_strategy_context():
        assert shift(x).placements == R
        with dr.implicit_strategy_context([]):
            assert shift(x).placements == R
        rule = dr.register_single_dim_strategy(shift)(
            lambda o, a, k: [[dr.ShardingPlaceholder(0)] * 2]
        )
        assert shift(x).placements == S0
        rule.undo()
        assert shift(x).placements == R
