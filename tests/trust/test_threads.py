"""Rules reach every thread, except for decisions made while nothing was installed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, _dispatch
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr

NEG = "aten.neg.default"
S0, R = (Shard(0),), (Replicate(),)


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


def gather(op: Any, args: Any, kwargs: Any) -> Any:
    return []


def test_a_rule_that_comes_while_another_thread_is_being_answered_reaches_it(x: Any) -> None:
    asked, changed = threading.Event(), threading.Event()

    def slow(op: Any, args: Any, kwargs: Any) -> Any:
        asked.set()
        assert changed.wait(30)
        return [[dr.ShardingPlaceholder(0)] * 2]

    with (
        dr.register_single_dim_strategy(NEG)(slow),
        ThreadPoolExecutor(1) as thread,
    ):
        first = thread.submit(torch.neg, x)
        assert asked.wait(30)
        with dr.register_single_dim_strategy(NEG)(gather):
            changed.set()
            # What was decided meanwhile is of the time before, and is asked for again.
            assert first.result().placements == R
            assert thread.submit(torch.neg, x).result().placements == R


def test_a_call_that_is_moving_data_while_rules_change_ends_as_it_began(
    x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = _dispatch.redistribute_local_tensor
    registrations: list[Any] = []

    def keep(op: Any, args: Any, kwargs: Any) -> Any:
        return [[dr.ShardingPlaceholder(0)] * 2]

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        if not registrations:
            change = dr.register_single_dim_strategy(NEG)
            registrations.append(thread.submit(change, keep).result())
        return moved(*args, **kwargs)

    with dr.register_single_dim_strategy(NEG)(gather), ThreadPoolExecutor(1) as thread:
        assert torch.neg(x).placements == R
        monkeypatch.setattr(_dispatch, "redistribute_local_tensor", meanwhile)
        assert torch.neg(x).placements == R
        assert torch.neg(x).placements == S0
        registrations[0].undo()
        assert torch.neg(x).placements == R


def test_backward_in_a_thread_of_its_own_follows_the_rules(x: Any) -> None:
    x.requires_grad_()

    def grads() -> Any:
        x.grad = None
        torch.neg(x).backward(torch.ones_like(x))
        return x.grad.placements

    with ThreadPoolExecutor(1) as thread, dr.install(allowed=[]):
        assert thread.submit(grads).result() == S0
        with dr.register_single_dim_strategy(NEG)(gather):
            assert thread.submit(grads).result() == R
        assert thread.submit(grads).result() == S0


PROGRAM = """\
import sys, warnings
from concurrent.futures import ThreadPoolExecutor
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
import dtensor_registry as dr

warnings.simplefilter("ignore")
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
x = DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
with ThreadPoolExecutor(1) as thread:
    ask = lambda: str(thread.submit(torch.neg, x).result().placements[0])
    ask()
    installation = dr.install(allowed=[])
    with dr.register_single_dim_strategy("aten.neg.default")(lambda op, args, kwargs: []):
        print(ask())
        thread.submit(_clear_sharding_prop_cache).result()
        print(ask())
    print(ask())
"""


def test_what_a_thread_decided_before_the_first_installation_stays_until_it_clears_its_cache() -> (
    None
):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stale, cleared, after = done.stdout.splitlines()
    assert (stale, cleared, after) == ("S(0)", "R", "S(0)")


FORK = """\
import os, threading, time
import dtensor_registry as dr
from dtensor_registry.torch_patch.override_stack import LOAN

held, done = threading.Event(), threading.Event()

def hold():
    with LOAN.lock:
        held.set()
        done.wait(0.5)

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()  # while another thread changes rules
if child == 0:
    with dr.register_single_dim_strategy("aten.neg.default")(dr.pointwise()):
        os._exit(0 if len(LOAN.layers) == 1 else 1)
thread.join()
_, status = os.waitpid(child, 0)
assert LOAN.layers == ()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_forked_while_another_thread_changes_rules_can_change_them_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
