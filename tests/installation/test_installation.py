"""`install()`: once however often, out again exactly, with the resolution to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.errors import (
    BrokenPluginsError,
    ConflictingStrategiesError,
    InstallError,
    OverwrittenEntryError,
)
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_runtime.dispatcher import propagator

RELU = torch.ops.aten.relu.default

PLUGIN = """\
from dtensor_registry import SingleDimStrategy, hookimpl

def rows(op, args, kwargs):
    return []

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy({ops!r}, rows)]
"""


@pytest.fixture
def acme(fake_distribution: Any) -> None:
    fake_distribution("acme-rules", PLUGIN.format(ops="aten.relu.default"))


def install(**settings: Any) -> dr.Installation:
    return dr.install(**{"allowed": ["acme-rules"], **settings})


def is_ours() -> bool:
    rule = propagator().op_single_dim_strategy_funcs[RELU].func
    return getattr(getattr(rule, "origin", None), "distribution", None) == "acme-rules"


def test_importing_the_host_and_its_torch_part_changes_nothing() -> None:
    assert LOAN.layers == ()
    assert not is_ours()


def test_installing_twice_is_one_installation_that_two_hold(acme: None) -> None:
    first, second = install(), install()
    assert first is second
    assert len(LOAN.layers) == 1
    first.uninstall()
    assert is_ours()
    assert second.active
    second.uninstall()
    assert not is_ours()
    assert not second.active


def test_uninstalling_once_more_does_no_harm(acme: None) -> None:
    installation = install()
    installation.uninstall()
    installation.uninstall()
    with install():
        assert is_ours()
    assert not is_ours()


def test_other_settings_go_on_top_until_they_are_uninstalled(acme: None) -> None:
    with install():
        with install(disabled=["acme"]) as without:
            assert without.resolution.verdicts == {}
            assert not is_ours()  # the latest installation decides alone
        assert is_ours()
        with install(pins={"aten.relu.default": "acme"}) as pinned:
            assert pinned.resolution["aten.relu.default"].reason == "pinned"
        assert is_ours()
    assert not is_ours()


def test_an_exception_in_the_block_uninstalls(acme: None) -> None:
    with pytest.raises(KeyError), install():
        raise KeyError
    assert not is_ours()


def test_the_resolution_says_who_won_and_prints(acme: None) -> None:
    with install() as installation:
        assert str(installation.resolution).startswith("aten.relu.default: acme-rules 1.0 (entry")
        assert "aten.relu.default" in installation.resolution
        assert str(installation).startswith("installation (active) of 1 ops\n")
    assert str(installation).startswith("installation (not active) of 1 ops\n")


def test_a_broken_plugin_leaves_nothing_half_installed(acme: None, fake_distribution: Any) -> None:
    fake_distribution("broken-rules", "import no_such_module")
    with pytest.raises(BrokenPluginsError):
        install(allowed=["acme-rules", "broken-rules"])
    assert not is_ours()
    assert LOAN.layers == ()


def test_a_conflict_leaves_nothing_half_installed(acme: None, fake_distribution: Any) -> None:
    fake_distribution("other-rules", PLUGIN.format(ops=["aten.neg.default", "aten.relu.default"]))
    with pytest.raises(ConflictingStrategiesError):
        install(allowed=["acme-rules", "other-rules"])
    assert LOAN.layers == ()


def test_a_rule_that_cannot_be_honoured_leaves_nothing_half_installed(
    acme: None, fake_distribution: Any
) -> None:
    module = fake_distribution("other-rules", PLUGIN.format(ops="aten.convolution.default"))
    with pytest.raises(InstallError) as caught:
        install(allowed=["acme-rules", "other-rules"], required=["other-rules"])
    assert str(caught.value) == (
        "a sharding rule for aten.convolution.default would not be honoured: torch runs this op"
        " through its handler 'convolution_handler', which does not redistribute what a rule asks"
        " for.\n"
        f"  rule of other-rules 1.0 (entry point 'other', {module}.py:3)\n"
        "  Until it is mended:  DTENSOR_REGISTRY_DISABLED='[\"other:aten.convolution.default\"]'"
    )
    assert LOAN.layers == ()


def test_after_other_code_overwrote_entries_a_new_installation_is_held_once(acme: None) -> None:
    theirs = propagator().op_single_dim_strategy_funcs[RELU]
    installation = install()
    propagator().op_single_dim_strategy_funcs[RELU] = theirs
    with pytest.raises(OverwrittenEntryError):
        installation.uninstall()
    assert not installation.active
    installation.hold()
    installation.uninstall()
    assert not installation.active


def test_equal_settings_and_plugins_have_one_fingerprint_and_others_another(
    acme: None, fake_distribution: Any
) -> None:
    with install() as one:
        pass
    with install() as same:
        pass
    with install(order=["torch", "*"]) as ordered:
        pass
    fake_distribution("acme-rules", PLUGIN.format(ops="aten.relu.default"), version="2", first=True)
    with install() as newer:
        pass
    assert one.fingerprint == same.fingerprint
    assert len({one.fingerprint, ordered.fingerprint, newer.fingerprint}) == 3


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


@pytest.mark.parametrize("change", ["install", "register", "context", "undo"])
def test_a_change_within_a_dispatch_is_refused(acme: None, x: Any, change: str) -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        if change == "install":
            install()
        elif change == "register":
            dr.register_single_dim_strategy("aten.neg.default")(rule)
        elif change == "context":
            with dr.implicit_strategy_context([]):
                pass
        else:
            registration.undo()
        return []

    with (
        dr.register_single_dim_strategy("aten.relu.default")(rule) as registration,
        pytest.raises(RuntimeError, match="this thread is inside the dispatch of an op"),
    ):
        torch.relu(x)
    assert torch.relu(x).placements == (Shard(0),)
