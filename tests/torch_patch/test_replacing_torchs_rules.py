"""A registration replaces torch's own rule at once, in every cache; undo brings torch's back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.errors import InstallError
from dtensor_registry.torch_runtime.dispatcher import propagator

R, S0, S1 = Replicate(), Shard(0), Shard(1)

RELU_PLUGIN = """\
from dtensor_registry import REPLICATE, SingleDimStrategy, hookimpl

def gather(op, args, kwargs):
    return []

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("aten.relu.default", gather)]
"""


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of rank 0 of 4, whose collectives move nothing: placements without values."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (2, 2))
    dist.destroy_process_group()


def on(mesh: Any, *placements: Any) -> Any:
    return DTensor.from_local(torch.ones(4, 4), mesh, placements)


def gather(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return []


Ask = Callable[[], Any]


def native(mesh: Any) -> Ask:
    """Ask torch's C++ cache and what stands behind it: run the op."""
    x, y = on(mesh, S0, R), on(mesh, R, S1)
    return lambda: torch.mm(x, y).placements


def python(mesh: Any) -> Ask:
    """Ask torch's Python cache: what handlers, decompositions and dynamic shapes go through."""
    x, y = on(mesh, S0, R), on(mesh, R, S1)
    schema = OpSchema(torch.ops.aten.mm.default, (x._spec, y._spec), {})
    return lambda: propagator().propagate_op_sharding(schema).output_spec.placements


CACHES = pytest.mark.parametrize("cache", [native, python])


@CACHES
def test_a_registration_answers_at_once_and_undo_gives_torchs_answer_back(
    mesh: Any, cache: Callable[[Any], Ask]
) -> None:
    ask = cache(mesh)
    assert ask() == ask() == (S0, S1)
    with dr.register_single_dim_strategy("aten.mm.default")(gather):
        assert ask() == ask() == (R, R)
    assert ask() == ask() == (S0, S1)


@pytest.mark.parametrize(
    "cache",
    [native, python],
)
def test_a_second_thread_that_cached_torchs_answer_gets_the_new_one_as_well(
    mesh: Any, cache: Callable[[Any], Ask]
) -> None:
    ask = cache(mesh)
    with ThreadPoolExecutor(1) as other:
        before = other.submit(ask).result()
        with dr.register_single_dim_strategy("aten.mm.default")(gather):
            inside = other.submit(ask).result()
        after = other.submit(ask).result()
    assert (before, inside, after) == ((S0, S1), (R, R), (S0, S1))


@CACHES
def test_a_second_thread_notices_every_change_after_the_first(
    mesh: Any, cache: Callable[[Any], Ask]
) -> None:
    ask = cache(mesh)
    with ThreadPoolExecutor(1) as other, dr.implicit_strategy_context([]):
        seen = [other.submit(ask).result()]
        with dr.register_single_dim_strategy("aten.mm.default")(gather):
            seen.append(other.submit(ask).result())
            with dr.register_single_dim_strategy("aten.mm.default")(dr.einsum("mk,kn->mn")):
                seen.append(other.submit(ask).result())
            seen.append(other.submit(ask).result())
        seen.append(other.submit(ask).result())
    assert seen == [(S0, S1), (R, R), (S0, S1), (R, R), (S0, S1)]


@CACHES
def test_a_thread_that_first_asks_inside_gets_torchs_answer_once_all_is_undone(
    mesh: Any, cache: Callable[[Any], Ask]
) -> None:
    ask = cache(mesh)
    with ThreadPoolExecutor(1) as other:
        with dr.register_single_dim_strategy("aten.mm.default")(gather):
            assert other.submit(ask).result() == (R, R)
        assert other.submit(ask).result() == (S0, S1)


def test_a_plugins_rule_for_relu_is_the_one_that_answers(mesh: Any, fake_distribution: Any) -> None:
    fake_distribution("acme-rules", RELU_PLUGIN)
    x = on(mesh, S0, S1)
    assert torch.relu(x).placements == (S0, S1)
    with dr.install(allowed=["acme-rules"]) as installation:
        assert torch.relu(x).placements == (R, R)
        verdict = installation.resolution["aten.relu.default"]
        assert verdict.winner is not None
        assert verdict.winner.origin.distribution == "acme-rules"
        assert verdict.torch_table == "op_single_dim_strategy_funcs"
    assert torch.relu(x).placements == (S0, S1)


@pytest.mark.parametrize("settings", [{"order": ["torch", "*"]}, {"pins": {"aten.relu": "torch"}}])
def test_torchs_rule_answers_where_the_settings_put_it_first(
    mesh: Any, fake_distribution: Any, settings: dict[str, Any]
) -> None:
    fake_distribution("acme-rules", RELU_PLUGIN)
    with dr.install(allowed=["acme-rules"], **settings):
        assert torch.relu(on(mesh, S0, S1)).placements == (S0, S1)


def test_a_rule_for_an_op_that_torch_keeps_in_its_full_mesh_table_answers_too(mesh: Any) -> None:
    x = on(mesh, S0, R)
    op = torch.ops.aten.topk.default
    if op in propagator().op_single_dim_strategy_funcs:
        pytest.skip("this torch keeps it in its single-dim table")
    assert torch.topk(x, 2)[0].placements == (S0, R)
    with dr.register_single_dim_strategy(op)(gather):
        assert torch.topk(x, 2)[0].placements == (R, R)
    assert torch.topk(x, 2)[0].placements == (S0, R)


@pytest.mark.parametrize("op", ["aten.as_strided.default", "aten.convolution.default"])
def test_a_rule_that_torchs_handler_would_pass_over_is_refused(mesh: Any, op: str) -> None:
    with pytest.raises(InstallError, match="would not be honoured"):
        dr.register_single_dim_strategy(op)(gather)


def test_in_place_and_out_variants_are_ops_of_their_own(mesh: Any) -> None:
    x = on(mesh, S0, R)
    with dr.register_single_dim_strategy("aten.relu.default")(gather):
        assert torch.relu_(x).placements == (S0, R)
        assert torch.relu(x).placements == (R, R)
