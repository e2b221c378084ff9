"""A plugin that is broken is named with distribution, version, cause and the setting for it.

The setting in each message is tried: with it, the rest is discovered.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dtensor_registry.discovery import Discovery, PluginWarning, discover
from dtensor_registry.errors import BrokenPluginsError, PluginError
from dtensor_registry.settings import read_settings

SOUND = """\
from dtensor_registry import SingleDimStrategy, hookimpl, einsum

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("acme.f.default", einsum("mk,kn->mn"))]
"""

HOOK = """\
from dtensor_registry import SingleDimStrategy, hookimpl, einsum

@hookimpl
def {name}():
    {body}
"""


def hook(body: str, name: str = "provide_single_dim_strategy") -> str:
    return HOOK.format(name=name, body=body)


BROKEN = {
    "importing raises": (
        "import no_such_module",
        r"importing it raised ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "importing exits": ("raise SystemExit(3)", r"importing it raised SystemExit: 3"),
    "the hook raises": (
        hook("raise ValueError('no rows today')"),
        r"its hook provide_single_dim_strategy raised ValueError: no rows today",
    ),
    "the hook raises while it yields": (
        hook("yield SingleDimStrategy('acme.f.default', einsum('mk,kn->mn')); 1 / 0"),
        r"its hook provide_single_dim_strategy raised ZeroDivisionError: division by zero",
    ),
    "the fallback hook raises": (
        hook("raise KeyError('x')", name="provide_fallback"),
        r"its hook provide_fallback raised KeyError: 'x'",
    ),
    "it claims an op twice": (
        hook("return [SingleDimStrategy('acme.f.default', einsum('mk,kn->mn')) for _ in 'ab']"),
        r"it claims acme.f.default twice, at .*:5 and .*:5",
    ),
    "a strategy is built from wrong parts": (
        hook("return [SingleDimStrategy('acme.f.default', 'mk,kn->mn')]"),
        r"its hook provide_single_dim_strategy raised InvalidContributionError:"
        r" SingleDimStrategy\(acme.f.default\): rule is a str",
    ),
    "the hook returns None": (
        hook("return None"),
        r"",
    ),
    "the hook returns something else": (
        hook("return ['acme.f.default']"),
        r"its hook provide_single_dim_strategy returned a str \('acme.f.default'\) among its"
        r" results; every one must be a SingleDimStrategy",
    ),
    "a hook is misspelt": (
        hook("return []", name="provide_single_dim_strategies"),
        r"unknown hook 'provide_single_dim_strategies' in plugin .*"
        r"\(a misspelt hook, or one of a newer dtensor-registry\)",
    ),
    "a hook takes an argument that the host does not give": (
        SOUND.replace("strategy():", "strategy(mesh):"),
        r"Argument\(s\) \{'mesh'\} are declared in the hookimpl but can not be found in the"
        r" hookspec \(a misspelt hook, or one of a newer dtensor-registry\)",
    ),
    "no hook is marked": (
        "def provide_single_dim_strategy():\n    return []\n",
        r"no function in fake_broken_rules_\d+ is marked @hookimpl",
    ),
}
del BROKEN["the hook returns None"]


@pytest.fixture(autouse=True)
def neighbour(fake_distribution: Any) -> str:
    """A plugin that is sound, beside every broken one."""
    module: str = fake_distribution("alpha-rules", SOUND)
    return module


def found(**settings: Any) -> Discovery:
    return discover(read_settings(allowed=["broken-rules", "alpha-rules"], **settings))


def failure_of(caught: pytest.ExceptionInfo[BrokenPluginsError]) -> PluginError:
    (failure,) = caught.value.failures
    return failure


def disabled_as_told(message: str) -> list[str]:
    """Read the value of the setting that a message says to set."""
    told = re.search(r"DTENSOR_REGISTRY_DISABLED='(.*)'", message)
    assert told is not None, message
    names: list[str] = json.loads(told[1])
    return names


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_named_and_the_setting_in_the_message_ends_it(
    fake_distribution: Any, kind: str
) -> None:
    source, cause = BROKEN[kind]
    module = fake_distribution("broken-rules", source, version="0.9")
    with pytest.raises(BrokenPluginsError) as caught:
        found()
    failure = failure_of(caught)
    assert re.search(cause, failure.cause, re.DOTALL), failure.cause
    assert failure.where == f"broken-rules 0.9 (entry point 'broken', {module})"
    rest = found(disabled=disabled_as_told(str(failure)))
    assert [c.op for c in rest.contributions] == ["acme.f.default"]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_can_be_skipped_with_a_warning_and_gives_nothing(
    fake_distribution: Any, kind: str
) -> None:
    source, _ = BROKEN[kind]
    fake_distribution("broken-rules", source)
    with pytest.warns(PluginWarning, match="plugin 'broken' of broken-rules 1.0"):
        discovery = found(on_plugin_error="skip")
    states = {p.distribution: p.state for p in discovery.plugins if p.state != "not allowed"}
    assert states == {"alpha-rules": "active", "broken-rules": "failed"}
    assert [c.op for c in discovery.contributions] == ["acme.f.default"]
    assert [str(note).partition("'")[0] for note in discovery.notes] == ["plugin "]


def test_all_broken_plugins_are_named_at_once(fake_distribution: Any) -> None:
    fake_distribution("worse-rules", "import no_such_module")
    fake_distribution("broken-rules", hook("raise ValueError"))
    with pytest.raises(BrokenPluginsError) as caught:
        discover(read_settings(allowed=["worse-rules", "broken-rules"]))
    assert [failure.plugin for failure in caught.value.failures] == ["broken", "worse"]


def test_a_plugin_that_needs_a_newer_host_is_named(fake_distribution: Any) -> None:
    # The host's own metadata, as an older installation of it would have them.
    fake_distribution("dtensor-registry", SOUND, entry_point="host", version="0.1.0", first=True)
    fake_distribution("broken-rules", SOUND, requires=["dtensor-registry[testing]>=7,<8"])
    with pytest.raises(BrokenPluginsError) as caught:
        found()
    failure = failure_of(caught)
    assert failure.cause == "it needs dtensor-registry<8,>=7, this is 0.1.0"
    assert found(disabled=disabled_as_told(str(failure))).contributions


def test_a_newer_host_that_only_an_extra_needs_is_no_fault(fake_distribution: Any) -> None:
    fake_distribution("dtensor-registry", SOUND, entry_point="host", version="0.1.0", first=True)
    fake_distribution("broken-rules", SOUND, requires=['dtensor-registry>=7; extra == "dev"'])
    assert [c.origin.plugin for c in found().contributions] == ["alpha", "broken"]


@pytest.mark.parametrize("first", [True, False])
def test_two_distributions_under_one_entry_point_name_are_both_named(
    fake_distribution: Any, neighbour: str, first: bool
) -> None:
    theirs = fake_distribution("broken-rules", SOUND, entry_point="alpha", first=first)
    with pytest.raises(BrokenPluginsError) as caught:
        found()
    assert [(f.where, f.cause) for f in caught.value.failures] == [
        (
            f"alpha-rules 1.0 (entry point 'alpha', {neighbour})",
            "its entry point has the same name as that of"
            f" broken-rules 1.0 (entry point 'alpha', {theirs})",
        ),
        (
            f"broken-rules 1.0 (entry point 'alpha', {theirs})",
            "its entry point has the same name as that of"
            f" alpha-rules 1.0 (entry point 'alpha', {neighbour})",
        ),
    ]
    # The name would switch off both, so each message says to name the distribution.
    rest = found(disabled=disabled_as_told(str(caught.value.failures[1])))
    assert [c.origin.distribution for c in rest.contributions] == ["alpha-rules"]


@pytest.mark.parametrize("name", ["torch", "local"])
def test_a_plugin_cannot_take_a_name_that_settings_use_for_something_else(
    fake_distribution: Any, name: str
) -> None:
    fake_distribution("broken-rules", SOUND, entry_point=name)
    with pytest.raises(BrokenPluginsError, match=f"the name '{name}' is reserved for the host"):
        found()


def test_one_module_under_two_entry_points_is_the_second_ones_failure(
    fake_distribution: Any, tmp_path: Any
) -> None:
    module = fake_distribution("broken-rules", SOUND)
    entry_points = tmp_path / module / "broken_rules-1.0.dist-info" / "entry_points.txt"
    entry_points.write_text(f"[dtensor_registry]\nbroken = {module}\nbroken2 = {module}\n")
    with pytest.raises(BrokenPluginsError) as caught:
        found()
    assert failure_of(caught).plugin == "broken2"
