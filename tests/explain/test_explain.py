"""`explain` from Python: whose answer it is, what is asked, and what it leaves behind."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.cli import main
from dtensor_registry.errors import (
    AskedError,
    InstallError,
    NoStrategyError,
    NotationError,
    NoValidRowError,
)
from dtensor_registry.explanation import Explanation, listing
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry_kit.simulation.mesh import simulated_mesh
from tests.conftest import PLUGINS_FIRST
from tests.explain.random_calls import whole

pytestmark = pytest.mark.usefixtures("repository_plugins")

X, W = "f32[8,4]@S(0),R", "f32[4,8]@R,S(1)"


@pytest.mark.parametrize(
    ("op", "arguments", "decider", "by"),
    [
        ("aten.mm", [X, W], "torch rule", "torch's own rule for one mesh dim"),
        ("aten.hardswish", [X], "rule", "pointwise: dtensor-registry-pointwise"),
        ("aten.unsqueeze", [X, 0], "torch", "torch's own rule"),
        ("aten.aminmax", [X], "decomposition", "the op's decomposition"),
        ("aten.kron", [X, W], "composite", "torch takes the op into parts"),
        ("aten.argmin", [X], "handler", "a handler of torch's"),
        ("aten.nonzero", [X], "fallback", "fallback replicate: dtensor-registry-fallback"),
    ],
)
def test_it_says_whose_answer_it_is(op: str, arguments: list[Any], decider: str, by: str) -> None:
    with dr.install(fallback={"mode": "warn"}) as installation:
        told = installation.explain(op, *arguments, mesh="2x2")
    assert told.decider == decider
    assert by in told.decided_by
    assert told.error is None
    assert [provider.decides for provider in told.providers].count(True) == 1


def test_who_decides_is_marked_where_torch_cannot_follow_the_decomposition() -> None:
    call: Any = ("aten.renorm", "f32[8,4]@S(0)", 2.0, 0, 1.0)
    with dr.install(fallback={"mode": "warn"}):
        fallen = dr.explain(*call, mesh=2)
    with dr.install(fallback={"mode": "off"}):
        alone = dr.explain(*call, mesh=2)
    with dr.install(fallback={"mode": "warn", "before_decomposition": True}):
        first = dr.explain("aten.renorm", X, 2.0, 0, 1.0, mesh="2x2")
    assert (fallen.decider, alone.decider, first.decider) == ("fallback", "nobody", "fallback")
    marked = [[p.name for p in told.providers if p.decides] for told in (fallen, alone, first)]
    assert marked == [["fallback replicate"], [], ["fallback replicate"]]
    reason = "torch cannot follow placements through it: No DTensorSpec found"
    assert all(told.providers[0].reason.startswith(reason) for told in (fallen, alone))
    assert first.providers[-1].reason.startswith("fallback replicate comes first")


@pytest.mark.parametrize(("mesh", "shape"), [(2, (2,)), ((2, 4), (2, 4)), ([4], (4,))])
def test_a_mesh_may_be_given_as_its_sizes(mesh: Any, shape: tuple[int, ...]) -> None:
    assert dr.explain("aten.relu", "f32[8]", mesh=mesh).mesh_shape == shape


@pytest.mark.parametrize("mesh", [0, (2, -1), (), True, {"dp": 2}, 1.5])
def test_what_is_no_mesh_is_refused(mesh: Any) -> None:
    with pytest.raises((AskedError, NotationError), match="mesh"):
        dr.explain("aten.relu", "f32[8]", mesh=mesh)


@pytest.mark.parametrize(
    ("adopted", "decider", "by"),
    [
        (True, "torch rule", "torch's own rule for one mesh dim, expanded by the host"),
        (False, "torch", "torch's own rule"),
    ],
)
def test_without_plugins_torch_decides(adopted: bool, decider: str, by: str) -> None:
    with dr.install(allowed=[], torch_rules=adopted):
        told = dr.explain("aten.mm", X, W, mesh="2x2")
    assert (told.decider, told.decided_by) == (decider, by)
    assert bool(told.rows) is adopted
    assert told.chosen is not None
    assert told.chosen.outputs == (("S(0)", "S(1)"),)


def test_what_this_process_registered_is_first() -> None:
    @dr.register_single_dim_strategy("aten.mm.default")
    def mine(op: Any, args: Any, kwargs: Any) -> list[Any]:
        return []

    with mine:
        told = dr.explain("aten.mm", X, W, mesh="2x2")
    assert [p.name for p in told.providers] == ["local", "torch", "matrix"]
    assert [p.decides for p in told.providers] == [True, False, False]
    assert told.rows == ("R <- R, R",)


def test_partial_kinds_and_writes_are_named_as_reasons() -> None:
    reasons = " | ".join(
        rejected.reason
        for told in (
            dr.explain("aten.mm", "f32[8,4]@S(0),S(0)", W, mesh="2x2", most=None),
            dr.explain("aten.add_.Tensor", X, X, mesh="2x2", most=None),
            dr.explain("aten.add.out", X, X, out=X, mesh="2x2", most=None),
            dr.explain("aten.mm", "f32[6,4]@S(0),R", W, mesh="8x1", most=None),
            _torchs("aten.add.Tensor", X, X),
        )
        for rejected in told.rejected
    )
    assert "'self', which the op writes to, and must stay (S(0), R)" in reasons
    assert "'out', which the op writes to, and must stay (S(0), R)" in reasons
    assert "dim 0 cannot be sharded: 6 elements < 8 shards" in reasons
    assert "would mix kinds of partial" in reasons


def test_of_each_kind_of_reason_one_is_among_the_first() -> None:
    told = _torchs("aten.add.Tensor", "f32[3,8]@S(1),R", "f32[3,8]@R,R", mesh="4x2", most=2)
    assert told.invalid is not None
    assert told.invalid > 2
    kinds = {"elements <" in r.reason: "mix kinds" in r.reason for r in told.rejected}
    assert kinds == {True: False, False: True}


def test_too_many_combinations_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST", 8)
    question = "S(0),R; R,S(1) -> S(0),S(1)"
    told = dr.explain("aten.mm", X, W, mesh="2x2", why_not=[question, "R,R; R,R -> R,R"])
    assert told.notes == ("64 combinations of rows, more than 8, are not listed",)
    assert (told.candidates, told.valid, told.rejected) == ((), None, ())
    assert told.chosen is not None
    assert [answer.answer.split(" and ")[0] for answer in told.why_not] == [
        "It is what is chosen.",
        "It is valid",
    ]


def _torchs(op: str, *inputs: str, mesh: str = "2x2", most: int | None = None) -> Explanation:
    """Explain by torch's own rules, which offer more kinds of partial."""
    with dr.install(allowed=[]):
        return dr.explain(op, *inputs, mesh=mesh, most=most)


def test_costs_of_a_choice_are_those_of_its_inputs_and_of_their_steps() -> None:
    told = dr.explain("aten.mm", "f32[64,64]@P,S(1)", "f32[64,64]@R,S(1)", mesh="2x2", most=None)
    assert told.candidates[0] == told.chosen
    assert told.valid == len(told.candidates)
    for choice in told.candidates:
        if choice.microseconds is not None:
            moves = [move.microseconds for move in choice.moves]
            assert choice.microseconds == pytest.approx(sum(moves))
            for move in choice.moves:
                assert move.microseconds == pytest.approx(sum(s.microseconds for s in move.steps))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("S(0),R; R,S(1) -> S(0),S(1)", "It is what is chosen."),
        ("S(0),R; R,R", "It is valid and costs "),
        ("S(1),R; R,R -> R,R", "On mesh dim 0 no row has inputs S(1), R."),
        ("S(0),R; R,S(1) -> S(0),R", "On mesh dim 1 no row is R <- R, S(1): with these inputs"),
        ("S(0),S(0); R,R -> S(0),S(0)", "It is valid and costs 0.00 us, as what is chosen does."),
    ],
)
def test_why_not(question: str, answer: str) -> None:
    told = dr.explain("aten.mm", X, "f32[4,8]@R,S(1)", mesh="2x2", why_not=question)
    if "as what is chosen" in answer:
        told = dr.explain("aten.mm", X, "f32[4,8]@R,R", mesh="2x2", why_not=question)
    assert told.why_not[0].answer.startswith(answer)


def test_dtensors_are_explained_on_their_own_mesh(local_mesh: Callable[..., Any]) -> None:
    mesh = local_mesh(2, 2)
    x = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
    w = distribute_tensor(torch.ones(4, 8), mesh, [Replicate(), Shard(1)])
    with dr.install() as installation:
        told = installation.explain(torch.ops.aten.mm.default, x, w)
        assert told == installation.explain("aten.mm", X, W, mesh=mesh)
        assert torch.equal((x @ w).full_tensor(), torch.full((8, 8), 4.0))
    assert told.outputs[0].placements == ("S(0)", "S(1)")
    assert told.outputs[0].local_shape == (4, 4)


def test_it_leaves_nothing_behind() -> None:
    with dr.install(fallback={"mode": "warn"}) as installation:
        before = [(layer.name, dict(layer.entries)) for layer in LOAN.layers]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            told = installation.explain("aten.nonzero", X, mesh="2x2")
        assert any("fallback 'replicate'" in note for note in told.notes)
        assert [(layer.name, dict(layer.entries)) for layer in LOAN.layers] == before
        assert installation.active
    assert not dist.is_initialized()
    dr.explain("aten.mm", X, W, mesh="2x2")
    assert LOAN.layers == ()


def test_a_process_in_a_group_gives_its_own_mesh() -> None:
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        with pytest.raises(InstallError, match="this process is in a process group"):
            dr.explain("aten.mm", X, W, mesh="2x2")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        told = dr.explain("aten.mm", X, W, mesh=mesh)
        assert (told.mesh_shape, told.mesh_dims) == ((2, 2), ("dp", "tp"))
    finally:
        dist.destroy_process_group()


def test_a_mesh_is_asked_for() -> None:
    with pytest.raises(AskedError, match="on which mesh"):
        dr.explain("aten.mm", X, W)


def test_an_explanation_does_not_change() -> None:
    told = dr.explain("aten.mm")
    with pytest.raises(FrozenInstanceError):
        told.op = "aten.add.Tensor"  # type: ignore[misc]
    assert not hasattr(told, "__dict__")


def _no_strategy(x: DTensor, _: DTensor) -> None:
    whole(x, x)


def _no_valid_row(x: DTensor, pending: DTensor) -> None:
    torch.add(x, x, out=pending)


@pytest.mark.parametrize(
    ("call", "kind"), [(_no_strategy, NoStrategyError), (_no_valid_row, NoValidRowError)]
)
def test_an_error_ends_with_the_command_that_explains_it(
    call: Callable[[DTensor, DTensor], None],
    kind: type[Exception],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Plugins first, so that a plugin's rule can refuse what torch's own would have raised for.
    monkeypatch.setenv("DTENSOR_REGISTRY_ORDER", json.dumps(PLUGINS_FIRST))
    with simulated_mesh(2, 2) as mesh, dr.install():
        x = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
        pending = DTensor.from_local(torch.ones(8, 4), mesh, [Partial("max"), Partial("max")])
        with pytest.raises((NotImplementedError, RuntimeError)) as caught:
            call(x, pending)
    found: BaseException | None = caught.value
    while found is not None and not isinstance(found, kind):
        found = found.__cause__
    first, *_, last = str(found).splitlines()
    match = re.fullmatch(r"  See why:  dtensor-registry (explain .+)", last)
    assert match is not None, found
    assert main(shlex.split(match[1])) == 1
    assert first in capsys.readouterr().out
