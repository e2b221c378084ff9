"""`without(wrong_rows(...))`: torch's own rule, without the rows that a plugin says are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.errors import InvalidContributionError, PlacementSyntaxError
from dtensor_registry.placements import REPLICATE, ShardingPlaceholder
from dtensor_registry.placements import Partial as Pending
from dtensor_registry.rules import without, wrong_rows
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry_kit.pytest_plugin.only import only

RELU, ADD, ADD_OUT = (
    torch.ops.aten.relu.default,
    torch.ops.aten.add.Tensor,
    torch.ops.aten.add.out,
)
FOREACH = torch.ops.aten._foreach_add_.List
MENDED = """\
from dtensor_registry import SingleDimStrategy, hookimpl, without, wrong_rows

def in_integers(op, args, kwargs):
    return not args[0].dtype.is_floating_point

@hookimpl
def provide_single_dim_strategy():
    return [
        SingleDimStrategy("aten.relu.default", without(
            wrong_rows("P(max) <- P(max)", because="it is only a test", when=in_integers),
        )),
        SingleDimStrategy(
            ["aten.add.Tensor", "aten.add.out", "aten._foreach_add_.List"],
            without(wrong_rows("P(max) <- P(max), R", "P(avg) <- R, P(avg)", because="a test")),
        ),
        SingleDimStrategy("aten.addmv_.default", without(
            wrong_rows("P(max) <- P(max), R, R", because="torch has no such rule"),
        )),
    ]
"""


@pytest.fixture
def mesh() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


@pytest.fixture
def mended(fake_distribution: Any) -> Iterator[dr.Installation]:
    fake_distribution("acme-rules", MENDED)
    with dr.install(order=["*", "torch"], allowed=["acme-rules"]) as installation:
        yield installation


def pending(mesh: Any, reduction: str, dtype: torch.dtype = torch.float32) -> DTensor:
    return DTensor.from_local(torch.ones(4, dtype=dtype), mesh, [Partial(reduction)])


def test_a_wrong_row_is_not_taken(mended: Any, mesh: Any) -> None:
    assert RELU(pending(mesh, "max", torch.int64)).placements == (Replicate(),)


def test_all_other_rows_are_torchs(mended: Any, mesh: Any) -> None:
    assert RELU(pending(mesh, "min", torch.int64)).placements == (Partial("min"),)


def test_a_call_that_the_condition_does_not_hold_for_is_decided_as_before(
    mended: Any, mesh: Any
) -> None:
    assert RELU(pending(mesh, "max")).placements == (Partial("max"),)


def test_an_out_argument_is_placed_as_the_output_and_is_left_out_of_the_row(
    mended: Any, mesh: Any
) -> None:
    whole = DTensor.from_local(torch.ones(4), mesh, [Replicate()])
    out = DTensor.from_local(torch.ones(4), mesh, [Replicate()])
    ADD_OUT(pending(mesh, "max"), whole, out=out)
    assert out.placements == (Replicate(),)


def test_a_row_of_an_op_over_lists_is_that_of_one_element(mended: Any, mesh: Any) -> None:
    parameter = DTensor.from_local(torch.ones(4), mesh, [Replicate()])
    FOREACH([parameter], [pending(mesh, "avg")])
    assert parameter.placements == (Replicate(),)
    assert parameter.to_local().tolist() == [2.0] * 4


def test_the_entry_keeps_what_else_torch_says_of_the_rule(mended: Any) -> None:
    info = propagator().op_single_dim_strategy_funcs[RELU]
    assert info.allow_uneven_sharding is True
    assert propagator().op_to_schema_info[RELU].static_kwargkey == ["out"]
    mended.uninstall()
    assert propagator().op_single_dim_strategy_funcs[RELU].func is info.func.func


def test_without_the_hosts_expansion_torch_expands_what_is_left(
    fake_distribution: Any, mesh: Any
) -> None:
    fake_distribution("acme-rules", MENDED)
    with dr.install(order=["*", "torch"], allowed=["acme-rules"], torch_rules=False):
        assert RELU(pending(mesh, "max", torch.int64)).placements == (Replicate(),)
        assert RELU(pending(mesh, "max")).placements == (Partial("max"),)


def test_an_op_without_such_a_rule_stays_torchs(mended: Any) -> None:
    verdict = mended.resolution["aten.addmv_.default"]
    assert verdict.winner is None
    assert [lost.reason for lost in verdict.shadowed] == [
        "torch has no rows here to leave any out of"
    ]


def test_explain_says_which_row_was_left_out_and_why(mended: Any) -> None:
    told = str(dr.explain("aten.relu.default", "i64[4]@P(max)", mesh="2"))
    assert "decided by acme: acme-rules 1.0" in told
    assert "left out of torch's rule: P(max) <- P(max): it is only a test" in told
    other = str(dr.explain("aten.relu.default", "f32[4]@P(max)", mesh="2"))
    assert "left out of torch" not in other


def test_a_rule_that_is_like_the_op_lacks_the_row_too(fake_distribution: Any, mesh: Any) -> None:
    like = 'SingleDimStrategy("aten.sigmoid.default", like("aten.relu.default")),'
    source = MENDED.replace("hookimpl, ", "hookimpl, like, ").replace("return [", f"return [{like}")
    fake_distribution("acme-rules", source)
    with dr.install(order=["*", "torch"], allowed=["acme-rules"]):
        sigmoid = torch.ops.aten.sigmoid.default
        assert sigmoid(pending(mesh, "max", torch.int64)).placements == (Replicate(),)
        assert sigmoid(pending(mesh, "max")).placements == (Partial("max"),)


def test_a_cut_in_a_row_is_of_any_kind() -> None:
    wrong = wrong_rows("S(0), - <- S(0), R", because="a test")
    assert wrong.has([ShardingPlaceholder(0), None, ShardingPlaceholder(0), REPLICATE], 0)
    assert not wrong.has([ShardingPlaceholder(1), None, ShardingPlaceholder(1), REPLICATE], 0)


def test_a_row_is_not_a_longer_one_that_begins_alike() -> None:
    wrong = wrong_rows("P(sum) <- P(sum)", because="a test")
    assert not wrong.has([Pending(), Pending(), REPLICATE], 0)


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(InvalidContributionError, match="a row is written 'outputs <- inputs'"):
        wrong_rows("P(max)", because="a test")
    with pytest.raises(InvalidContributionError, match="names no row"):
        wrong_rows(because="a test")
    with pytest.raises(PlacementSyntaxError):
        wrong_rows("P(most) <- R", because="a test")


def test_it_is_no_rule_by_itself() -> None:
    with pytest.raises(InvalidContributionError, match="before it was bound to torch's rule"):
        without()(RELU, (), {})


def test_shards_are_torchs(mended: Any, mesh: Any) -> None:
    cut = DTensor.from_local(torch.ones(2, dtype=torch.int64), mesh, [Shard(0)])
    assert RELU(cut).placements == (Shard(0),)
    assert ADD(cut, cut).placements == (Shard(0),)


def test_doctor_lists_what_this_torch_has_no_such_row_for(fake_distribution: Any) -> None:
    fake_distribution("acme-rules", MENDED)
    check = dr.doctor(only("acme-rules"))["corrections"]
    assert check.state == "ok"
    listed = [detail.partition(";")[0] for detail in check.details]
    assert "aten.addmv_.default: torch has no rule with rows for it" in listed
    assert not any("aten._foreach_add_.List" in detail for detail in listed)
    assert not any("aten.relu" in detail for detail in listed)
