"""Looking at what is decided changes nothing, and a context costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.cli import main
from dtensor_registry.installation import context
from dtensor_registry.torch_runtime import rule_epoch
from dtensor_registry.torch_runtime.compat import TABLES
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator

RELU = torch.ops.aten.relu.default


@torch.library.custom_op("trust_looking::shift", mutates_args=())
def shift(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@shift.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def state() -> dict[str, Any]:
    """Take down all that a running program would notice, but for this thread's own caches."""
    frames = torch._dynamo.convert_frame.FRAME_COUNTER
    tables = {name: dict(getattr(propagator(), name)) for name in TABLES}
    return {
        **tables,
        "handlers": dict(dispatcher()._custom_op_handlers),
        "epoch": rule_epoch.current(),
        "cached decisions of torch's Python": propagator().propagate_op_sharding,
        "key of compiled code": torch.compiler.config.cache_key_tag,
        "frames compiled": frames,
        "torch's hooks": {**vars(dispatcher()), "sharding_propagator": None},
    }


def test_explain_ops_and_doctor_change_nothing_in_a_running_program(
    mesh: DeviceMesh, capsys: Any
) -> None:
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)
    with dr.install(allowed=["dtensor-registry-pointwise"]) as installation:

        @torch.compile(backend="aot_eager")
        def compiled(x: Any) -> Any:
            return torch.relu(x) + 1

        compiled(x)
        before = state()
        assert dr.explain(RELU, x).decided_by
        assert installation.explain("aten.mm.default", x, "f32[4,4]@S(0)").chosen is not None
        assert dr.explain("aten.special_i0.default", x).error is None
        assert main(["ops", "aten.relu*"]) == 0
        dr.doctor()
        assert state() == before
        compiled(x)
        assert state()["frames compiled"] == before["frames compiled"]


def test_explaining_while_nothing_is_installed_keeps_compiled_code(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)

    @torch.compile(backend="aot_eager")
    def compiled(x: Any) -> Any:
        return torch.neg(x) + 1

    compiled(x)
    frames = state()["frames compiled"]
    assert dr.explain(RELU, x).chosen is not None
    compiled(x)
    assert state()["frames compiled"] == frames


def test_a_rule_that_was_bound_to_be_explained_is_put_back(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)
    with dr.install(allowed=["dtensor-registry-fallback"], fallback={"mode": "silent"}):
        before = {name: dict(getattr(propagator(), name)) for name in TABLES}
        explained = dr.explain(shift, x)
        assert explained.decider == "fallback"
        assert {name: dict(getattr(propagator(), name)) for name in TABLES} == before
        assert torch.relu(x).placements == x.placements


def test_contexts_find_no_plugins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def counting(*arguments: Any) -> Any:
        found.append(arguments)
        return discover(*arguments)

    discover = context.discover
    context._fallbacks_of.cache_clear()
    monkeypatch.setattr(context, "discover", counting)
    for _ in range(3):
        with dr.implicit_strategy_context():
            pass
    assert len(found) == 1
    with dr.install():
        for _ in range(3):
            with dr.implicit_strategy_context():
                pass
    assert len(found) == 1


def test_a_context_writes_to_no_table_until_an_op_falls_back(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)], run_check=False)
    with dr.install(allowed=["dtensor-registry-fallback"]):
        before = {name: dict(getattr(propagator(), name)) for name in TABLES}
        with dr.implicit_strategy_context():
            assert {name: dict(getattr(propagator(), name)) for name in TABLES} == before
            with pytest.warns(UserWarning, match="trust_looking.shift.default"):
                shift(x)
        assert {name: dict(getattr(propagator(), name)) for name in TABLES} == before
