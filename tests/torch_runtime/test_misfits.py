"""A rule that does not fit its op, as the op is in this torch, is left out: one rule, no more."""

from __future__ import annotations

import itertools
import json
import warnings
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
from dtensor_registry.cli import main
from dtensor_registry.discovery import PluginWarning
from dtensor_registry.errors import MisfitError
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry_kit.pytest_plugin.only import only
from dtensor_registry_kit.verification.targets import find_targets

R, S0, S1 = Replicate(), Shard(0), Shard(1)
TORCHS, OURS = (S0, S1), (R, S1)
"""What becomes of (S0, S1) under torch's rule for an elementwise op, and under `ONLY_S1`."""

PLUGIN = """\
import torch
from dtensor_registry import SingleDimStrategy, hookimpl, like, notation, pointwise, row, rows

ONLY_S1 = row(out="S(1)", self="S(1)")
MISFIT = row(out="S(0)", given="S(0)")

{defines}
@hookimpl
def provide_single_dim_strategy():
    yield SingleDimStrategy("aten.neg.default", ONLY_S1)
    yield {misfit}
    yield SingleDimStrategy("aten.sin.default", ONLY_S1)
"""
RELU_MISFIT = 'SingleDimStrategy("aten.relu.default", MISFIT)'
RELU = (
    'row(out="S(0)", given="S(0)"): aten.relu.default(Tensor self) has no tensor argument'
    " 'given'; it has self"
)
LINE = 11
"""Where `PLUGIN` has the misfit."""


@torch.library.custom_op("trunk_misfits::third", mutates_args=())
def third(x: Tensor) -> Tensor:
    return x / 3


@third.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def acme(fake_distribution: Any) -> Any:
    """Install a plugin whose second rule is given: `acme(RELU_MISFIT) -> module`."""

    def make(misfit: str = RELU_MISFIT, *, name: str = "acme-rules", defines: str = "") -> str:
        return str(fake_distribution(name, PLUGIN.format(misfit=misfit, defines=defines)))

    return make


@pytest.fixture
def x() -> Iterator[DTensor]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    yield DTensor.from_local(torch.ones(4, 4), mesh, [S0, S1])
    dist.destroy_process_group()


def install(*distributions: str, **settings: Any) -> tuple[dr.Installation, list[str]]:
    """Install, and list the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        installation = dr.install(allowed=distributions or ["acme-rules"], **settings)
    assert all(warning.category is PluginWarning for warning in caught)
    return installation, [str(warning.message) for warning in caught]


def test_a_rule_that_names_an_argument_which_does_not_exist_is_one_warning(
    acme: Any, x: DTensor
) -> None:
    module = acme()
    before = dict(propagator().op_single_dim_strategy_funcs)
    installation, warned = install()
    with installation:
        assert warned == [
            f"the sharding rule for aten.relu.default does not fit it: {RELU}\n"
            f"  rule of acme-rules 1.0 (entry point 'acme', {module}.py:{LINE})\n"
            "  Until it is mended:  DTENSOR_REGISTRY_DISABLED='[\"acme:aten.relu.default\"]'\n"
            "  It is left out: what torch itself does stays."
        ]
        assert list(installation.left_out) == warned
        assert torch.relu(x).placements == TORCHS
        assert torch.neg(x).placements == torch.sin(x).placements == OURS
        verdict = installation.resolution["aten.relu.default"]
        assert (verdict.winner, len(verdict.shadowed)) == (None, 1)
        assert verdict.shadowed[0].reason == (
            f"left out: the sharding rule for aten.relu.default does not fit it: {RELU}"
        )
    assert propagator().op_single_dim_strategy_funcs == before


@pytest.mark.parametrize(
    ("misfit", "problem"),
    [
        (
            'SingleDimStrategy("aten.relu.default", row(out="S(0), R", self="S(0)"))',
            "places 2 output(s), but aten.relu.default returns 1",
        ),
        (
            'SingleDimStrategy("aten.relu.default", notation("a b, b -> a b"))',
            "the equation has 2 inputs, but aten.relu.default(Tensor self) takes 1 tensor",
        ),
        (
            'SingleDimStrategy("aten.relu.default", like("aten.no_such_op.default"))',
            "is to be sharded like aten.no_such_op.default, but that op does not exist",
        ),
        (
            'SingleDimStrategy("aten.convolution.default", ONLY_S1)',
            "torch runs this op through its handler 'convolution_handler'",
        ),
        ('SingleDimStrategy("trunk_misfits.third.default", MISFIT)', "it has x"),
    ],
    ids=["outputs", "tensors", "like", "handler", "namespace of others"],
)
def test_whatever_does_not_fit_the_others_are_in_force(
    acme: Any, x: DTensor, misfit: str, problem: str
) -> None:
    acme(misfit)
    installation, warned = install()
    with installation:
        assert len(warned) == 1
        assert problem in warned[0]
        assert torch.neg(x).placements == OURS
        assert torch.relu(x).placements == TORCHS


def test_one_rule_for_several_ops_and_their_variants_is_one_warning(acme: Any) -> None:
    acme('SingleDimStrategy(["aten.relu.default", "aten.exp"], MISFIT, variants=True)')
    installation, warned = install()
    with installation:
        assert len(warned) == 1
        assert warned[0].startswith("the sharding rule for aten._foreach_exp.default ") or (
            warned[0].startswith("the sharding rule for aten.exp.default does not fit it")
        )
        (last,) = (line for line in warned[0].splitlines() if line.startswith("  Nor does it fit"))
        assert "aten.exp.out" in last
        assert "aten.relu.default" in last
        assert "aten.relu_.default" in last


def test_the_next_claimant_wins_the_op(acme: Any, x: DTensor) -> None:
    acme()
    acme(name="second-rules", misfit='SingleDimStrategy("aten.relu.default", ONLY_S1)')
    order = ["acme", "second", "*", "torch"]
    installation, warned = install("acme-rules", "second-rules", order=order)
    with installation:
        assert len(warned) == 1
        assert "It is left out: second-rules 1.0 (entry point 'second', " in warned[0]
        assert torch.relu(x).placements == OURS


def test_the_next_claimant_may_not_fit_either(acme: Any, x: DTensor) -> None:
    acme()
    acme(name="second-rules")
    order = ["acme", "second", "*", "torch"]
    installation, warned = install("acme-rules", "second-rules", order=order)
    with installation:
        assert ["acme-rules" in warned[0], "second-rules" in warned[1]] == [True, True]
        assert torch.relu(x).placements == TORCHS


def test_a_rule_like_one_that_is_left_out_is_like_what_answers_then(acme: Any, x: DTensor) -> None:
    acme()
    acme(name="other-rules", misfit='SingleDimStrategy("aten.abs", like("aten.relu.default"))')
    order = ["acme", "other", "*", "torch"]
    installation, warned = install("acme-rules", "other-rules", order=order)
    with installation:
        assert [message.splitlines()[0].split(" does")[0] for message in warned] == [
            "the sharding rule for aten.relu.default"
        ]
        assert torch.abs(x).placements == TORCHS
        assert installation.resolution["aten.abs.default"].winner is not None


OWN_OP = """\
@torch.library.custom_op("{0}::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x / 2
"""
_names = (f"trunk_misfits_own_{number}" for number in itertools.count())


def test_for_an_op_of_the_plugins_own_it_is_an_error_and_nothing_is_in_force(
    acme: Any, x: DTensor
) -> None:
    namespace = next(_names)
    acme(f'SingleDimStrategy("{namespace}.own.default", MISFIT)', defines=OWN_OP.format(namespace))
    with pytest.raises(MisfitError, match="has no tensor argument 'given'; it has x"):
        install()
    assert torch.neg(x).placements == TORCHS


@pytest.mark.parametrize(
    "strict", [{"required": ["acme_rules>=1"]}, {"pins": {"aten.relu": "acme"}}]
)
def test_of_a_plugin_that_is_required_or_pinned_it_is_an_error(acme: Any, strict: Any) -> None:
    acme()
    with pytest.raises(MisfitError) as caught:
        install(**strict)
    assert (caught.value.op, caught.value.plugin) == ("aten.relu.default", "acme")


def test_switched_off_it_is_not_worth_a_word(acme: Any, x: DTensor) -> None:
    acme()
    installation, warned = install(disabled=["acme:aten.relu.default"])
    with installation:
        assert warned == []
        assert torch.neg(x).placements == OURS


def test_for_an_op_that_comes_later_it_is_a_warning_when_that_op_first_runs(
    acme: Any, x: DTensor
) -> None:
    namespace = next(_names)
    acme(f'SingleDimStrategy("{namespace}.own.default", MISFIT)')
    acme(
        name="second-rules",
        misfit=f'SingleDimStrategy("{namespace}.own.default", row(out="S(1)", x="S(1)"))',
    )
    order = ["acme", "second", "*", "torch"]
    installation, warned = install("acme-rules", "second-rules", order=order)
    with installation:
        assert warned == []
        own = _define(namespace)
        with pytest.warns(PluginWarning, match="'given'; it has x") as caught:
            assert own(x).placements == OURS
        assert len(caught) == 1
        assert "It is left out: second-rules 1.0" in str(caught[0].message)
        assert own(x + x).placements == OURS


def _define(namespace: str) -> Any:
    fragment = torch.library.Library(namespace, "FRAGMENT")
    fragment.define("own(Tensor x) -> Tensor")
    fragment.impl("own", lambda x: x + 1, "CompositeExplicitAutograd")
    LIBRARIES.append(fragment)
    return getattr(torch.ops, namespace).own.default


LIBRARIES: list[Any] = []


def test_doctor_lists_it(acme: Any) -> None:
    acme()
    found = dr.doctor(only("acme-rules"))["rules"]
    assert (found.state, len(found.details)) == ("warn", 1)
    assert RELU in found.details[0]
    strict = dr.doctor(only("acme-rules", required=("acme-rules",)))["rules"]
    assert strict.state == "fail"


def test_ops_lists_it(
    acme: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    acme()
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules"]')
    assert main(["ops", "aten.relu.default", "--json"]) == 0
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)["ops"]
    assert row["winner"] is None
    assert row["shadowed"][0]["plugin"] == "acme"
    assert row["shadowed"][0]["reason"].startswith("left out: ")
    assert RELU in row["shadowed"][0]["reason"]
    assert RELU in printed.err.replace("\n", " ")


def test_verification_says_that_it_does_not_fit(acme: Any) -> None:
    acme()
    problems = {s.name: s.problem for s in find_targets(only("acme-rules"), ["acme-rules"])}
    assert RELU in problems.pop("aten.relu.default")
    assert problems == {"aten.neg.default": "", "aten.sin.default": ""}
