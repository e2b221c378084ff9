"""The same behaviours on four real ranks, each a process of its own, over gloo."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.installation import FallbackWarning
from dtensor_registry.torch_patch.override_stack import LOAN

R, S0, S1 = Replicate(), Shard(0), Shard(1)
TABLES = (
    "op_single_dim_strategy_funcs",
    "op_strategy_funcs",
    "op_to_rules",
    "op_to_schema_info",
    "op_to_schema_info_for_single_dim_strategy",
)


@torch.library.custom_op("trunk_ranks::mix", mutates_args=())
def mix(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + y.cumsum(0).flip(1)


@mix.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("trunk_ranks::other", mutates_args=())
def other(x: Tensor) -> Tensor:
    return x + 1


@other.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def tables() -> dict[str, dict[Any, Any]]:
    propagator = DTensor._op_dispatcher.sharding_propagator
    return {table: dict(getattr(propagator, table)) for table in TABLES}


def error_of(function: Any, *args: Any) -> str:
    try:
        function(*args)
    except NotImplementedError as error:
        return str(error).splitlines()[0]
    return "no error"


def seen_by(rank: int) -> dict[str, Any]:
    """Run everything on one rank, and tell what it saw."""
    warnings.simplefilter("ignore", FallbackWarning)
    mesh = init_device_mesh("cpu", (2, 2))
    values = torch.arange(32.0).reshape(8, 4)
    x = distribute_tensor(values, mesh, [S0, S1])
    y = distribute_tensor(values.sin(), mesh, [S0, S1])
    expected = values * 2 + values.sin().cumsum(0).flip(1)
    pristine = tables()
    seen: dict[str, Any] = {}

    def right(out: Any) -> list[Any]:
        return [str(out.placements), torch.equal(out.full_tensor(), expected)]

    seen["error before"] = error_of(mix, x, y)
    with dr.implicit_strategy_context():
        seen["in a context"] = right(mix(x, y))
    seen["error after"] = error_of(mix, x, y)
    with dr.implicit_strategy_context([dr.OpStrategyPack(mix._opoverload)]):
        seen["in a context with a list"] = right(mix(x, y))
        seen["error of an op that is not in the list"] = error_of(other, x)

    fallback = {"allowed": ["dtensor-registry-fallback"], "fallback": {"mode": "silent"}}
    with dr.install(**fallback), dr.install(**fallback):
        seen["layers of two installations"] = len(LOAN.layers)
        seen["with the fallback"] = right(mix(x, y))

    z = distribute_tensor(values.t(), mesh, [R, S1])

    def product() -> list[Any]:
        out = torch.mm(x, z)
        return [str(out.placements), torch.allclose(out.full_tensor(), values @ values.t())]

    seen["torch's mm"] = [product(), product()]
    with dr.register_single_dim_strategy("aten.mm.default")(lambda op, args, kwargs: []):
        seen["our mm"] = [product(), product()]
    seen["torch's mm again"] = [product(), product()]

    final = tables()
    seen["tables as they were"] = pristine == final and all(
        final[table][op] is value for table in TABLES for op, value in pristine[table].items()
    )
    return seen


@pytest.fixture(scope="module")
def seen(run_ranks: Any) -> dict[str, Any]:
    """What all four ranks saw, which is one thing."""
    first, *others = run_ranks(seen_by, ranks=4)
    assert others == [first] * 3
    result: dict[str, Any] = first
    return result


NO_STRATEGY = "Operator trunk_ranks.{}.default does not have a sharding strategy registered."
GATHERED = ["(Replicate(), Replicate())", True]


def test_the_fallback_gives_right_values_replicated(seen: dict[str, Any]) -> None:
    assert seen["with the fallback"] == GATHERED


def test_a_context_serves_inside_and_the_error_is_torchs_before_and_after(
    seen: dict[str, Any],
) -> None:
    assert seen["error before"] == NO_STRATEGY.format("mix")
    assert seen["in a context"] == GATHERED
    assert seen["error after"] == NO_STRATEGY.format("mix")


def test_a_context_with_a_list_serves_only_the_ops_in_it(seen: dict[str, Any]) -> None:
    assert seen["in a context with a list"] == GATHERED
    assert seen["error of an op that is not in the list"] == NO_STRATEGY.format("other")


def test_a_registration_for_mm_replaces_torchs_rule_and_undo_brings_it_back(
    seen: dict[str, Any],
) -> None:
    assert seen["our mm"] == [GATHERED, GATHERED]
    assert seen["torch's mm"] == seen["torch's mm again"]
    assert seen["torch's mm"] != seen["our mm"]


def test_a_spawned_process_installs_once_and_ends_with_torchs_tables(seen: dict[str, Any]) -> None:
    assert seen["layers of two installations"] == 1
    assert seen["tables as they were"]
