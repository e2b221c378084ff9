"""A fallback that is broken, or switched off, is its plugin's affair: by name, op by op."""

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
from dtensor_registry.errors import FallbackRefusedError, RuleError

PLUGIN = """\
from dtensor_registry import FallbackStrategy, hookimpl

def rows(op, args, kwargs):
    {rows}

def refuses(op):
    {refuses}

@hookimpl
def provide_fallback():
    return [FallbackStrategy({name!r}, rows, refuses)]
"""


@torch.library.custom_op("trunk_broken::f", mutates_args=())
def f(x: Tensor) -> Tensor:
    return x + 1


@f.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


def source(name: str = "gather", rows: str = "return []", refuses: str = "return None") -> str:
    return PLUGIN.format(name=name, rows=rows, refuses=refuses)


def falling_back(*distributions: str, **settings: Any) -> Any:
    allowed = distributions or ("acme-fallback",)
    return dr.install(**{"allowed": allowed, "fallback": {"mode": "silent"}, **settings})


def test_a_reason_to_refuse_ends_up_in_the_error(fake_distribution: Any, x: Any) -> None:
    fake_distribution("acme-fallback", source(refuses="return 'it is too large'"))
    with falling_back(), pytest.raises(FallbackRefusedError) as caught:
        f(x)
    assert caught.value.reasons == (("gather", "it is too large"),)


def test_the_next_fallback_is_asked_when_one_refuses(fake_distribution: Any, x: Any) -> None:
    fake_distribution("acme-fallback", source("a", refuses="return 'no'"))
    fake_distribution("other-fallback", source("b"))
    with falling_back("acme-fallback", "other-fallback"):
        assert f(x).placements == (Replicate(),)


def test_the_order_of_fallbacks_says_who_is_asked_first(fake_distribution: Any, x: Any) -> None:
    keep = "from dtensor_registry import ShardingPlaceholder; return [[ShardingPlaceholder(0)] * 2]"
    fake_distribution("acme-fallback", source("a"))
    fake_distribution("other-fallback", source("b", rows=keep))
    both = ("acme-fallback", "other-fallback")
    with falling_back(*both):
        assert f(x).placements == (Replicate(),)
    with falling_back(*both, fallback={"mode": "silent", "order": ["b", "*"]}):
        assert f(x).placements == (Shard(0),)


def test_rows_that_raise_are_the_plugins_failure_by_name(fake_distribution: Any, x: Any) -> None:
    module = fake_distribution("acme-fallback", source(rows="raise KeyError('x')"))
    with falling_back(), pytest.raises(RuleError) as caught:
        f(x)
    assert f"acme-fallback 1.0 (entry point 'acme', {module}.py:3)" in str(caught.value)


def test_a_refusal_that_raises_is_the_plugins_failure_by_name(
    fake_distribution: Any, x: Any
) -> None:
    fake_distribution("acme-fallback", source(refuses="raise KeyError('x')"))
    with falling_back(), pytest.raises(Exception, match="KeyError: 'x'") as caught:
        f(x)
    assert "acme-fallback 1.0 (entry point 'acme'" in str(caught.value)


def test_a_fallback_that_is_switched_off_for_an_op_is_not_asked(
    fake_distribution: Any, x: Any
) -> None:
    # The setting that the error of a broken rule says to set.
    fake_distribution("acme-fallback", source(rows="raise KeyError('x')"))
    with (
        falling_back(disabled=["acme:trunk_broken.f.default"]),
        pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"),
    ):
        f(x)
