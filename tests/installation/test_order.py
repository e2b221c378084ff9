"""Where torch stands in the order, on the running torch: its rules and handlers, then ours."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.cli import main
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import has_rule
from dtensor_registry.torch_runtime.dispatcher import dispatcher
from dtensor_registry.torch_runtime.ops import find_op
from tests.conftest import PLUGINS_FIRST

pytestmark = pytest.mark.usefixtures("repository_plugins")

R, S0, P = Replicate(), Shard(0), Partial()
FILLERS = {"pointwise", "matrix", "structure"}


@torch.library.custom_op("order_tests::alone", mutates_args=())
def alone(x: torch.Tensor) -> torch.Tensor:
    """Stand for the ops for which torch has nothing at all."""
    return x + 1


@alone.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of rank 0 of 2, whose collectives move nothing: placements without values."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def on(mesh: Any, placement: Placement, *shape: int) -> DTensor:
    return DTensor.from_local(torch.ones(*shape), mesh, [placement])


def test_no_rule_or_handler_of_torchs_is_replaced() -> None:
    """Ask torch's tables before anything is installed, not what the host says of them."""
    with dr.install() as installation:
        verdicts = dict(installation.resolution.verdicts)
    won = {op for op, v in verdicts.items() if v.winner and v.winner.origin.plugin in FILLERS}
    ops = {name: find_op(name) for name in won}
    replaced = [
        name
        for name, op in ops.items()
        if op is not None and (has_rule(op) or op in dispatcher()._custom_op_handlers)
    ]
    assert replaced == []
    assert len(won) > 50  # there is something that they are for


def test_the_list_of_ops_shows_no_rule_of_torchs_that_is_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["ops", "aten.*", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ops"]
    winners = {row["winner"]["plugin"] for row in rows if row["winner"] is not None}
    assert winners >= FILLERS
    replaced = [r for r in rows if r["winner"] and r["torch_table"]]
    assert {r["winner"]["plugin"] for r in replaced} <= {"corrections"}


def test_what_fills_a_gap_says_that_torch_has_no_rule() -> None:
    with dr.install() as installation:
        told = installation.resolution["aten.mv.default"].reason
    assert told == "step 4 of 'order' ('matrix'); torch has no rule for it"


def test_a_rule_that_fills_a_gap_comes_before_torchs_decomposition(mesh: Any) -> None:
    matrix, vector = on(mesh, S0, 4, 4), on(mesh, R, 4)
    with dr.install():
        assert torch.mv(matrix, vector).placements == (S0,)
        assert LOAN.owner(torch.ops.aten.mv.default).name == "matrix"


@pytest.mark.parametrize("pin", ["aten.mv", "aten.mv.default"])
def test_a_pin_to_torch_brings_its_decomposition_back(mesh: Any, pin: str) -> None:
    matrix, vector = on(mesh, S0, 4, 4), on(mesh, R, 4)
    bare = torch.mv(matrix, vector).placements
    with dr.install(pins={pin: "torch"}) as installation:
        assert torch.mv(matrix, vector).placements == bare
        told = dr.explain("aten.mv", "f32[8,4]@S(0)", "f32[4]", mesh=mesh)
        verdict = installation.resolution["aten.mv.default"]
    assert (verdict.winner, verdict.reason) == (None, "pinned")
    assert told.decider == "decomposition"
    assert [p.rule for p in told.providers if p.decides] == ["the op's decomposition"]


def test_a_pin_to_torch_brings_torchs_own_error_back(mesh: Any) -> None:
    x = on(mesh, S0, 4)
    with pytest.raises(NotImplementedError) as bare:
        alone(x)
    with (
        dr.install(pins={"order_tests.alone": "torch"}, fallback={"mode": "silent"}),
        pytest.raises(NotImplementedError) as pinned,
    ):
        alone(x)
    assert (type(pinned.value), str(pinned.value)) == (type(bare.value), str(bare.value))


def test_a_plugin_after_torch_does_not_reach_an_op_that_torch_runs_by_a_handler(
    fake_distribution: Any,
) -> None:
    plugin = """\
    from dtensor_registry import SingleDimStrategy, hookimpl

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("aten.argmin.default", lambda op, args, kwargs: [])]
    """
    fake_distribution("acme-rules", inspect.cleandoc(plugin))
    with dr.install(allowed=["acme-rules"], order=["torch", "*"]) as installation:
        verdict = installation.resolution["aten.argmin.default"]
    assert (verdict.winner, verdict.torch_table) == (None, "_custom_op_handlers")


def test_plugins_first_replaces_torchs_rules(mesh: Any) -> None:
    with dr.install(order=PLUGINS_FIRST) as installation:
        assert torch.neg(on(mesh, P, 4)).placements == (P,)
        assert LOAN.owner(torch.ops.aten.neg.default).name == "pointwise"
        assert LOAN.owner(torch.ops.aten.mm.default).name == "matrix"
        verdict = installation.resolution["aten.neg.default"]
    assert verdict.reason == "step 1 of 'order' ('pointwise')"
