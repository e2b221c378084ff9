"""Each misbehaviour of a plugin: what the user sees, how to end it, and torch as it was before."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.discovery import PluginWarning, load
from dtensor_registry.errors import BrokenPluginsError
from dtensor_registry.torch_patch.override_stack import LOAN

# By path: test files are modules of no package.
_spec = importlib.util.spec_from_file_location(
    "bad_plugin_cases", Path(__file__).with_name("cases.py")
)
assert _spec is not None
assert _spec.loader is not None
table: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = table
_spec.loader.exec_module(table)

NEIGHBOUR = """\
from dtensor_registry import ShardingPlaceholder, SingleDimStrategy, hookimpl

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("aten.relu.default", lambda op, args, kwargs: [])]
"""


def of(*when: str) -> Any:
    cases = [case for case in table.CASES if case.when in when]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def neighbour(fake_distribution: Any) -> None:
    """A sound plugin beside every bad one."""
    fake_distribution("alpha-rules", NEIGHBOUR)


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(3), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


def install(**settings: Any) -> dr.Installation:
    return dr.install(allowed=["bad-rules", "alpha-rules"], **settings)


def switched_off(message: str) -> list[str]:
    """Read the value of the setting that a message says to set."""
    told = re.search(r"DTENSOR_REGISTRY_DISABLED='(.*)'", message)
    assert told is not None, message
    names: list[str] = json.loads(told[1])
    return names


@of("start")
def test_a_plugin_that_fails_stops_the_installation_with_owner_and_off_switch(
    fake_distribution: Any, case: Any, x: Any
) -> None:
    module = fake_distribution("bad-rules", case.source, version="0.9")
    with pytest.raises(BrokenPluginsError) as caught:
        install()
    (failure,) = caught.value.failures
    assert failure.where == f"bad-rules 0.9 (entry point 'bad', {module})"
    assert case.seen in str(failure)
    assert LOAN.layers == ()
    with install(disabled=switched_off(str(failure))):
        assert torch.relu(x).placements == (Replicate(),)
        assert torch.neg(x).placements == (Shard(0),)


@pytest.mark.parametrize(
    "case",
    [case for case in table.CASES if case.when == "start"][::4],
    ids=lambda case: case.name,
)
def test_a_plugin_that_fails_can_be_skipped_which_is_told_and_part_of_the_fingerprint(
    fake_distribution: Any, case: Any
) -> None:
    with dr.install(allowed=["alpha-rules"], on_plugin_error="skip") as without:
        pass
    fake_distribution("bad-rules", case.source)
    with pytest.warns(UserWarning, match="plugin 'bad' of bad-rules 1.0"):
        installation = install(on_plugin_error="skip")
    with installation:
        assert installation.decides_by["plugin bad"].endswith("failed")
        assert installation.decides_by["plugin alpha"].endswith("active")
        assert list(installation.resolution.verdicts) == ["aten.relu.default"]
    assert installation.fingerprint != without.fingerprint


@of("call")
def test_a_rule_that_fails_is_named_with_owner_and_off_switch_and_other_ops_go_on(
    fake_distribution: Any, case: Any, x: Any
) -> None:
    module = fake_distribution("bad-rules", case.source, version="0.9")
    with install():
        with pytest.raises(RuntimeError) as caught:
            torch.neg(x)
        message = str(caught.value)
        assert case.seen in message
        assert f"bad-rules 0.9 (entry point 'bad', {module}.py:" in message
        assert torch.relu(x).placements == (Replicate(),)
    with install(disabled=switched_off(message)):
        assert torch.neg(x).placements == (Shard(0),)


@of("told")
def test_what_a_user_should_know_is_told_and_the_plugin_is_installed(
    fake_distribution: Any, case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case.name == "takes long to import":
        monkeypatch.setattr(load, "SLOW", 0)
    fake_distribution("bad-rules", case.source)
    with pytest.warns(PluginWarning, match=re.escape(case.seen)) as told:
        installation = install()
    with installation:
        messages = [str(one.message) for one in told]
        assert ["bad-rules 1.0 (entry point 'bad'" in m for m in messages].count(True) == 1
        assert {p.name: p.state for p in installation.discovery.plugins}["bad"] == "active"


@of("borne")
def test_what_does_no_harm_is_borne(
    fake_distribution: Any, case: Any, x: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_distribution("bad-rules", case.source)
    with install() as installation:
        assert {torch.neg(x).placements for _ in range(4)} <= {(Shard(0),), (Replicate(),)}
        assert len({torch.neg(x).placements for _ in range(4)}) == 1
        assert len(installation.fingerprint) == 64
    assert capsys.readouterr().out == ""


def test_ctrl_c_while_a_plugin_is_imported_is_no_fault_of_the_plugin(
    fake_distribution: Any,
) -> None:
    fake_distribution("bad-rules", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        install()
    assert LOAN.layers == ()


def test_what_torchs_own_modules_register_when_a_plugin_imports_them_stays(
    fake_distribution: Any,
) -> None:
    # inductor defines an op, and torch rules it, when it is first imported.
    fake_distribution("bad-rules", f"import torch._inductor.lowering\n{table.SOUND}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may take long
        with install() as installation:
            assert "aten.neg.default" in installation.resolution


def test_there_are_at_least_twenty_misbehaviours_each_under_a_name_of_its_own() -> None:
    names = [case.name for case in table.CASES]
    assert len(set(names)) == len(names) >= 20


def test_the_page_is_what_the_table_says() -> None:
    assert table.PAGE.read_text("utf-8") == table.page(), "run: python tests/bad_plugins/cases.py"
