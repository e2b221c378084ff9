"""The audit names, for every op that ran, who decided it, and what it moved."""

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

PLUGIN = """\
from dtensor_registry import FallbackStrategy, ShardingPlaceholder, SingleDimStrategy, hookimpl

def keep(op, args, kwargs):
    return [[ShardingPlaceholder(0)] * 2]

def keep_both(op, args, kwargs):
    return [[ShardingPlaceholder(0)] * 3]

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("trunk_audit.ruled", keep),
            SingleDimStrategy("trunk_audit.biased", keep_both)]

@hookimpl
def provide_fallback():
    return [FallbackStrategy("gather", lambda op, args, kwargs: [])]
"""

LIBRARY = torch.library.Library("trunk_audit", "FRAGMENT")
for schema, kernel in {
    "ruled(Tensor x) -> Tensor": lambda x: x + 1,
    "unruled(Tensor x) -> Tensor": lambda x: x + 2,
    "biased(Tensor x, *, Tensor bias) -> Tensor": lambda x, bias: x + bias,
}.items():
    LIBRARY.define(schema)
    LIBRARY.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(4, 4), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


def deciders(record: Any) -> dict[str, str]:
    return {row.op: row.decided_by for row in record.rows}


def test_each_op_is_laid_to_the_one_who_decided_it(fake_distribution: Any, x: Any) -> None:
    fake_distribution("acme-rules", PLUGIN)
    ops = torch.ops.trunk_audit
    with (
        dr.install(allowed=["acme-rules"], fallback={"mode": "silent"}),
        dr.register_single_dim_strategy("aten.neg.default")(dr.pointwise()),
        dr.audit() as record,
    ):
        ops.ruled(x)
        ops.unruled(x)
        ops.biased(x, bias=x)
        torch.relu(x)
        torch.neg(x)
        torch.argmax(x, 1)
    assert deciders(record) == {
        "aten.argmax.default": "handler",
        "aten.neg.default": "local",
        "aten.relu.default": "torch",
        "trunk_audit.biased.default": "acme",
        "trunk_audit.ruled.default": "acme",
        "trunk_audit.unruled.default": "fallback gather",
    }


def test_calls_are_counted_and_what_they_moved_is_told(fake_distribution: Any, x: Any) -> None:
    fake_distribution("acme-rules", PLUGIN)
    fallback = {"mode": "silent"}
    with dr.install(allowed=["acme-rules"], fallback=fallback), dr.audit() as record:
        for _ in range(3):
            torch.ops.trunk_audit.unruled(x)
    (row,) = record.rows
    assert (row.calls, dict(row.collectives), row.bytes) == (3, {"all_gather": 3}, 3 * 64)
    assert row.placements == ("R <- R",)


def test_the_audit_changes_no_result(x: Any) -> None:
    plain = torch.relu(x)
    with dr.audit():
        audited: Tensor = torch.relu(x)
    assert isinstance(audited, DTensor)
    assert audited.placements == plain.placements != (Replicate(),)
