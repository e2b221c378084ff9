"""C2: how many decisions are cached for an op that is called with ever new numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import dtensor_registry as dr
from dtensor_registry.torch_patch import dispatch_hooks
from dtensor_registry.torch_patch.dispatch_hooks import CacheKeyWarning

LEFT_OUT = dr.SchemaInfo()
"""No argument but the tensors is in the key."""


@pytest.fixture(scope="module")
def scale() -> Iterator[Any]:
    """`scale(Tensor x, float by) -> Tensor`, of a vendor."""
    library = torch.library.Library("adoption_test", "FRAGMENT")
    library.define("scale(Tensor x, float by) -> Tensor")
    library.impl("scale", lambda x, by: x * by, "CompositeExplicitAutograd")
    yield torch.ops.adoption_test.scale.default
    library._destroy()


@pytest.fixture
def sharded(fake_ranks: None) -> DTensor:
    return DTensor.from_local(torch.ones(2, 4), init_device_mesh("cpu", (8,)), [Shard(0)])


def decided(op: Any, x: DTensor, numbers: range) -> int:
    """Call an op once for each number and say how many calls were no hit in torch's cache."""
    hits_before, misses_before = torch._C._get_DTensor_sharding_propagator_cache_stats()
    for number in numbers:
        op(x, number / 2)
    hits, misses = torch._C._get_DTensor_sharding_propagator_cache_stats()
    assert hits - hits_before + misses - misses_before == len(numbers)
    return misses - misses_before


def test_calls_that_differ_in_an_excluded_number_share_one_decision(
    scale: Any, sharded: DTensor
) -> None:
    with dr.register_single_dim_strategy(scale, schema_info=LEFT_OUT)(dr.pointwise()):
        assert decided(scale, sharded, range(1000)) == 1


def test_a_number_is_in_the_key_unless_the_author_takes_it_out(
    scale: Any, sharded: DTensor
) -> None:
    with dr.register_single_dim_strategy(scale)(dr.pointwise()):
        assert decided(scale, sharded, range(20)) == 20
        assert decided(scale, sharded, range(20)) == 0


def test_at_most_a_bounded_number_of_decisions_of_one_op_is_cached(
    scale: Any, sharded: DTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_hooks, "MAX_CACHED", 8)
    with dr.register_single_dim_strategy(scale)(dr.pointwise()):
        with pytest.warns(CacheKeyWarning, match="was decided 8 times"):
            decided(scale, sharded, range(30))

        assert decided(scale, sharded, range(8)) == 0
        assert decided(scale, sharded, range(8, 30)) == 22


def test_the_cache_of_bare_torch_keeps_every_decision(scale: Any, sharded: DTensor) -> None:
    """Why the bound above is needed: what was decided first is still there."""
    with dr.register_single_dim_strategy(scale)(dr.pointwise()):
        decided(scale, sharded, range(1000))

        assert decided(scale, sharded, range(1)) == 0


def test_an_adopted_rule_keeps_the_key_that_torch_gave_it(sharded: DTensor) -> None:
    keyed, unkeyed = torch.ops.aten.mul.Scalar, torch.ops.aten._foreach_mul.Scalar

    def each(x: DTensor, number: float) -> Any:
        return unkeyed([x], number)

    bare = decided(keyed, sharded, range(20)), decided(each, sharded, range(20))
    with dr.install(dr.Settings(allowed=())):
        adopted = decided(keyed, sharded, range(20)), decided(each, sharded, range(20))

    assert bare == adopted == (20, 1)
