"""Rules for ops whose library is not imported yet: bound when the op exists and first runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr

R, S0, S1 = Replicate(), Shard(0), Shard(1)

PLUGIN = """\
from dtensor_registry import ShardingPlaceholder, SingleDimStrategy, hookimpl

def rows(op, args, kwargs):
    return [[ShardingPlaceholder({dim})] * 2]

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy({op!r}, rows)]
"""

_names = itertools.count()


@pytest.fixture
def library() -> str:
    """A namespace that nobody has used."""
    return f"trunk_pending_{next(_names)}"


def define(library: str, overload: str = "") -> Any:
    """Define `library::f`, as importing its package would."""
    name = f"f.{overload}" if overload else "f"
    fragment = torch.library.Library(library, "FRAGMENT")
    fragment.define(f"{name}(Tensor x{', int n' if overload else ''}) -> Tensor")
    fragment.impl(name, lambda x, n=1: x + n, "CompositeExplicitAutograd")
    LIBRARIES.append(fragment)
    return getattr(getattr(torch.ops, library).f, overload or "default")


LIBRARIES: list[Any] = []


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    yield DTensor.from_local(torch.ones(4, 4), mesh, [S0, S1])
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["{}.f.default", "{}.f", "{}::f"])
def test_a_plugins_rule_is_bound_once_the_op_exists(
    fake_distribution: Any, library: str, x: Any, name: str
) -> None:
    op_name = name.format(library)
    fake_distribution("acme-rules", PLUGIN.format(dim=0, op=op_name))
    with dr.install(allowed=["acme-rules"]) as installation:
        assert installation.resolution[op_name.replace("::", ".")].pending
        f = define(library)
        for _ in range(2):
            assert f(x).placements == (S0, R)
    with pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"):
        f(x)


def test_a_rule_of_this_process_is_bound_once_the_op_exists(library: str, x: Any) -> None:
    def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        return [[dr.ShardingPlaceholder(1)] * 2]

    with dr.register_single_dim_strategy(f"{library}.f")(rows):
        f = define(library)
        assert f(x).placements == (R, S1)


def test_a_new_overload_of_a_packet_that_exists_is_covered_by_the_packets_rule(
    fake_distribution: Any, library: str, x: Any
) -> None:
    define(library)
    fake_distribution("acme-rules", PLUGIN.format(dim=0, op=f"{library}.f"))
    with dr.install(allowed=["acme-rules"]):
        later = define(library, "by")
        assert later(x, 2).placements == (S0, R)


@pytest.mark.parametrize(
    "when",
    [
        "before install",
        pytest.param(
            "after install",
        ),
    ],
)
def test_the_order_decides_between_a_packet_and_an_overload_whenever_the_op_is_defined(
    fake_distribution: Any, library: str, x: Any, when: str
) -> None:
    fake_distribution("first-rules", PLUGIN.format(dim=0, op=f"{library}.f"))
    fake_distribution("second-rules", PLUGIN.format(dim=1, op=f"{library}.f.default"))
    if when == "before install":
        define(library)
    with dr.install(allowed=["first-rules", "second-rules"], order=["first", "second"]):
        f = define(library) if when == "after install" else getattr(torch.ops, library).f.default
        assert f(x).placements == (S0, R)


def test_a_rule_beats_the_fallback_when_the_op_comes_late(
    fake_distribution: Any, repository_plugins: None, library: str, x: Any
) -> None:
    fake_distribution("acme-rules", PLUGIN.format(dim=0, op=f"{library}.f"))
    allowed = ["acme-rules", "dtensor-registry-fallback"]
    with dr.install(allowed=allowed, fallback={"mode": "silent"}):
        assert define(library)(x).placements == (S0, R)


def test_the_arguments_of_a_late_op_are_in_the_cache_key_from_the_first_call(
    library: str, x: Any
) -> None:
    def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        return [[dr.ShardingPlaceholder(args[1])] * 2]

    with dr.register_single_dim_strategy(f"{library}.f.by")(rows):
        f = define(library, "by")
        assert [f(x, dim).placements for dim in (0, 1, 0)] == [(S0, R), (R, S1), (S0, R)]
