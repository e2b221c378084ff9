"""Decisions cached in other threads notice every change, whatever kind of rule it is about."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr

R, S0 = Replicate(), Shard(0)


@torch.library.custom_op("trunk_fresh::shift", mutates_args=())
def shift(x: Tensor) -> Tensor:
    return x + 1


@shift.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("trunk_fresh::scaled", mutates_args=())
def scaled(x: Tensor, whole: bool) -> Tensor:
    return x * 2


@scaled.register_fake
def _(x: Tensor, whole: bool) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [S0])
    dist.destroy_process_group()


@pytest.fixture
def other() -> Iterator[Any]:
    """Another thread, with caches of its own; `other(f, *args)` runs a call there."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda function, *args: thread.submit(function, *args).result()


@pytest.fixture
def fallback(fake_distribution: Any) -> None:
    source = """\
    from dtensor_registry import FallbackStrategy, hookimpl

    @hookimpl
    def provide_fallback():
        return [FallbackStrategy("gather", lambda op, args, kwargs: [])]
    """
    fake_distribution("acme-fallback", source)


def falling_back() -> Any:
    return dr.install(allowed=["acme-fallback"], fallback={"mode": "silent"})


def keep(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return [[dr.ShardingPlaceholder(0)] * 2]


def gather(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return []


def test_a_rule_that_is_undone_is_gone_in_a_thread_that_cached_its_decision(
    x: Any, other: Any
) -> None:
    with dr.register_single_dim_strategy(shift)(keep):
        assert other(shift, x).placements == (S0,)
    with pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"):
        other(shift, x)
    with dr.register_single_dim_strategy(shift)(gather):
        assert other(shift, x).placements == (R,)


def test_a_fallback_that_ends_is_gone_in_a_thread_that_used_it(
    fallback: None, x: Any, other: Any
) -> None:
    with falling_back():
        assert other(shift, x).placements == (R,)
    with pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"):
        other(shift, x)


def test_a_fallback_that_begins_again_serves_a_thread_that_used_it_before(
    fallback: None, x: Any, other: Any
) -> None:
    for _ in range(2):
        with falling_back():
            assert other(shift, x).placements == (R,)


def test_a_fallback_takes_over_in_a_thread_that_cached_a_rule_which_was_undone(
    fallback: None, x: Any, other: Any
) -> None:
    with falling_back():
        with dr.register_single_dim_strategy(shift)(keep):
            assert other(shift, x).placements == (S0,)
        assert other(shift, x).placements == (R,)


def test_a_rule_takes_over_from_a_fallback_in_a_thread_that_used_it(
    fallback: None, x: Any, other: Any
) -> None:
    with falling_back():
        assert other(shift, x).placements == (R,)
        with dr.register_single_dim_strategy(shift)(keep):
            assert other(shift, x).placements == (S0,)
        assert other(shift, x).placements == (R,)


def test_an_argument_that_a_rule_reads_is_part_of_the_decision(x: Any, other: Any) -> None:
    def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        return gather(op, args, kwargs) if args[1] else keep(op, args, kwargs)

    def both() -> tuple[Any, Any]:
        return scaled(x, False).placements, scaled(x, True).placements

    with dr.register_single_dim_strategy(scaled)(rows):
        assert both() == other(both) == ((S0,), (R,))
        with dr.register_single_dim_strategy(scaled)(keep):
            assert both() == other(both) == ((S0,), (S0,))
        assert both() == other(both) == ((S0,), (R,))


def test_a_decision_is_made_once_and_then_cached(x: Any) -> None:
    asked = []

    def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        asked.append(op)
        return keep(op, args, kwargs)

    with dr.register_single_dim_strategy(shift)(rows):
        for _ in range(5):
            shift(x)
        assert len(asked) == 1
        with dr.register_single_dim_strategy("aten.neg.default")(gather):
            shift(x)  # asked again, since torch's caches know no single op
        assert len(asked) == 2


def test_after_the_last_undo_torchs_propagator_has_no_trace_of_the_host() -> None:
    dispatcher = DTensor._op_dispatcher
    before = set(vars(dispatcher)), set(vars(dispatcher.sharding_propagator))
    with dr.register_single_dim_strategy(shift)(keep):
        during = set(vars(dispatcher)), set(vars(dispatcher.sharding_propagator))
    after = set(vars(dispatcher)), set(vars(dispatcher.sharding_propagator))
    assert before == after != during


def test_a_fake_kernel_that_installs_is_refused_as_well(x: Any) -> None:
    registrations = []

    @torch.library.custom_op("trunk_fresh::lazy", mutates_args=())
    def lazy(x: Tensor) -> Tensor:
        return x + 1

    @lazy.register_fake
    def _(x: Tensor) -> Tensor:
        # A library that sets itself up on first use, while the host is not installed.
        registrations.append(dr.register_single_dim_strategy("aten.neg.default")(gather))
        return torch.empty_like(x)

    try:
        with pytest.raises(RuntimeError, match="this thread is inside the dispatch of an op"):
            lazy(x)
    finally:
        for registration in registrations:
            registration.undo()


def test_a_rule_that_makes_a_change_when_it_is_asked_afresh_is_refused(
    fallback: None, x: Any
) -> None:
    asked = []

    def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        asked.append(op)
        if len(asked) == 2:
            dr.register_single_dim_strategy("aten.neg.default")(gather)
        return []

    with falling_back(), dr.register_single_dim_strategy("aten.relu.default")(rows):
        torch.relu(x)
        shift(x)  # binds a fallback, so that all cached decisions are asked for afresh
        with pytest.raises(RuntimeError, match="this thread is inside the dispatch of an op"):
            torch.relu(x)
