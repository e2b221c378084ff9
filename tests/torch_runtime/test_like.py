"""`like(op)`: the rule that another op has, a plugin's or torch's own."""

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
from dtensor_registry.errors import InstallError

R, S0, S1 = Replicate(), Shard(0), Shard(1)
LINE = " (entry point 'acme', "


@torch.library.custom_op("trunk_like::matmul", mutates_args=())
def matmul(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@matmul.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], y.shape[1])


@pytest.fixture
def pair() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    yield (
        DTensor.from_local(torch.ones(4, 4), mesh, [S0, R]),
        DTensor.from_local(torch.ones(4, 4), mesh, [R, S1]),
    )
    dist.destroy_process_group()


def plugin(body: str) -> str:
    return f"""\
from dtensor_registry import SingleDimStrategy, hookimpl, like

def gather(op, args, kwargs):
    return []

@hookimpl
def provide_single_dim_strategy():
    return [{body}]
"""


LIKE_MM = 'SingleDimStrategy("trunk_like.matmul.default", like("aten.mm.default"))'
MM = 'SingleDimStrategy("aten.mm.default", gather)'


def test_it_takes_torchs_rule_where_no_plugin_has_one(fake_distribution: Any, pair: Any) -> None:
    fake_distribution("acme-rules", plugin(LIKE_MM))
    with dr.install(allowed=["acme-rules"]):
        assert matmul(*pair).placements == (S0, S1)


def test_it_takes_the_winners_rule_where_a_plugin_has_one(
    fake_distribution: Any, pair: Any
) -> None:
    fake_distribution("acme-rules", plugin(LIKE_MM))
    fake_distribution("other-rules", plugin(MM))
    with dr.install(allowed=["acme-rules", "other-rules"]):
        assert matmul(*pair).placements == (R, R)


def test_it_takes_torchs_rule_where_torch_is_put_first(fake_distribution: Any, pair: Any) -> None:
    fake_distribution("acme-rules", plugin(LIKE_MM))
    fake_distribution("other-rules", plugin(MM))
    pins = {"aten.mm.default": "torch"}
    with dr.install(allowed=["acme-rules", "other-rules"], pins=pins):
        assert matmul(*pair).placements == (S0, S1)


def test_it_takes_the_installed_rule_for_a_registration_of_this_process(
    fake_distribution: Any, pair: Any
) -> None:
    fake_distribution("other-rules", plugin(MM))
    rule = dr.like("aten.mm.default")
    with dr.install(allowed=["other-rules"]), dr.register_single_dim_strategy(matmul)(rule):
        assert matmul(*pair).placements == (R, R)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            'SingleDimStrategy("trunk_like.matmul.default", like("trunk_like.matmul.default"))',
            "trunk_like.matmul.default is to be sharded like trunk_like.matmul.default, but it"
            " leads back to itself: ['trunk_like.matmul.default']",
        ),
        (
            'SingleDimStrategy("trunk_like.matmul.default", like("no_such.op.default"))',
            "trunk_like.matmul.default is to be sharded like no_such.op.default, but that op does"
            " not exist",
        ),
        (
            'SingleDimStrategy("trunk_like.matmul.default", like("aten.nonzero.default"))',
            "trunk_like.matmul.default is to be sharded like aten.nonzero.default, but that op has"
            " no single-dim rule",
        ),
    ],
)
def test_a_rule_that_leads_nowhere_is_refused_with_its_owner(
    fake_distribution: Any, body: str, problem: str
) -> None:
    module = fake_distribution("acme-rules", plugin(body))
    with pytest.raises(InstallError) as caught:
        dr.install(allowed=["acme-rules"], required=["acme-rules"])
    assert str(caught.value) == (
        f"{problem}.\n"
        f"  rule of acme-rules 1.0 (entry point 'acme', {module}.py:8)\n"
        "  Name an op that has a rule, or write one."
    )
