"""A call is decided once: dispatch writes the decision, and explain and audit read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.errors import NoValidRowError
from dtensor_registry.torch_fake.call import named_error
from dtensor_registry.torch_runtime import decide
from dtensor_registry.torch_runtime.decision import Decision, recording
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator
from tests.conftest import PLUGINS_FIRST

pytestmark = pytest.mark.usefixtures("repository_plugins")

X, W = "f32[8,4]@S(0),R", "f32[4,8]@R,S(1)"


@pytest.mark.parametrize(
    "call",
    [
        ("aten.mm", X, W),
        ("aten.hardswish", X),
        ("aten.add.out", X, X, "out=", X),
        ("aten.nonzero", X),
    ],
    ids=lambda call: call[0],
)
def test_a_call_is_searched_once_to_be_explained(
    call: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    search = decide.cheapest

    def counted(*args: Any) -> Any:
        searched.append(args)
        return search(*args)

    monkeypatch.setattr(decide, "cheapest", counted)
    op, *given = call
    out = {"out": given.pop()} if "out=" in given else {}
    with dr.install(order=PLUGINS_FIRST, fallback={"mode": "silent"}) as installation:
        told = installation.explain(op, *[g for g in given if g != "out="], mesh="2x2", **out)
    assert told.error is None
    assert told.chosen is not None
    assert len(searched) == (0 if op == "aten.nonzero" else 1)


def test_torchs_answer_carries_the_decision(local_mesh: Callable[..., Any]) -> None:
    mesh = local_mesh(2, 2)
    x = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
    made: list[Decision] = []
    with dr.install(), recording(made.append):
        op = torch.ops.aten.hardswish.default
        schema = dispatcher().unwrap_to_op_info(op, (x,), {}).schema
        answer = propagator().propagate_op_sharding(schema)
    (decision,) = made
    assert answer.decision is decision
    assert decision.owner is not None
    assert (decision.decider, decision.owner.name) == ("rule", "pointwise")
    assert [str(row) for row in decision.choices[0].inputs[0]] == ["S(0)", "R"]
    assert decision.wanted == decision.inputs == (x._spec,)


def test_a_call_that_is_refused_reports_what_was_asked_and_the_error(
    local_mesh: Callable[..., Any],
) -> None:
    mesh = local_mesh(2, 2)
    x = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
    pending = DTensor.from_local(torch.ones(8, 4), mesh, [Partial("max"), Partial("max")])
    made: list[Decision] = []
    with (
        dr.install(order=PLUGINS_FIRST),
        recording(made.append),
        pytest.raises((NoValidRowError, RuntimeError)) as caught,
    ):
        torch.add(x, x, out=pending)
    (decision,) = made
    assert decision.error is named_error(caught.value)
    assert decision.call is not None
    assert decision.call.problem.rows
    assert (decision.choices, decision.wanted) == ((), None)


def test_audit_shows_the_moves_of_an_op_that_the_host_runs_itself(
    local_mesh: Callable[..., Any],
) -> None:
    mesh = local_mesh(2, 2)
    x = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
    with dr.install(fallback={"mode": "silent"}), dr.audit() as record:
        torch.nonzero(x)
    (row,) = (row for row in record.rows if row.op == "aten.nonzero.default")
    assert (row.decided_by, row.moved) == ("fallback replicate", {"S(0), R -> R, R": 1})
    assert row.placements == ("R, R <- R, R",)


@pytest.mark.parametrize("before", [False, True], ids=["new", "decided before"])
def test_audit_reads_the_decision_of_an_answer_that_torch_has_in_a_cache(
    before: bool,
    local_mesh: Callable[..., Any],
) -> None:
    mesh = local_mesh(2, 2)
    x = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
    y = distribute_tensor(torch.ones(8, 4), mesh, [Replicate(), Replicate()])
    made: list[Decision] = []
    with dr.install():
        if before:
            x + y
        with dr.audit() as record, recording(made.append):
            for _ in range(3):
                x + y
    (row,) = (row for row in record.rows if row.op == "aten.add.Tensor")
    assert (row.calls, row.moved) == (3, {"R, R -> S(0), R": 3})
    assert len(made) == 1
