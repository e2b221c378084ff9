"""What discovery finds, and whose it is; made-up distributions on disk, nothing replaced."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from dtensor_registry.discovery import Discovery, Plugin, discover, list_plugins
from dtensor_registry.errors import RequiredPluginError, SettingsError
from dtensor_registry.settings import read_settings

RULES = """\
from dtensor_registry import FallbackStrategy, SingleDimStrategy, hookimpl, einsum

def rows(op, args, kwargs):
    return []

@hookimpl
def provide_single_dim_strategy():
    yield SingleDimStrategy(["acme.f.default", "acme::g"], rows)
    yield SingleDimStrategy("acme.mm.default", einsum("mk,kn->mn"))

@hookimpl
def provide_fallback():
    return [FallbackStrategy("gather", rows)]
"""


def found(*distributions: str, **settings: Any) -> Discovery:
    """Discover with only these distributions let in."""
    return discover(read_settings(allowed=distributions, **settings))


def named(discovery: Discovery, distribution: str) -> Plugin:
    (plugin,) = [p for p in discovery.plugins if p.distribution == distribution]
    return plugin


def test_a_plugin_is_known_by_entry_point_distribution_version_and_module(
    fake_distribution: Any,
) -> None:
    module = fake_distribution("alpha-rules", RULES, version="2.3.0")
    plugin = named(found("alpha-rules"), "alpha-rules")
    assert plugin == Plugin("alpha", "alpha-rules", "2.3.0", module, "active")
    assert str(plugin) == f"alpha-rules 2.3.0 (entry point 'alpha', {module})"


def test_every_contribution_knows_its_op_its_owner_and_its_line(fake_distribution: Any) -> None:
    module = fake_distribution("alpha-rules", RULES)
    discovery = found("alpha-rules")
    assert [(c.op, str(c.origin)) for c in discovery.contributions] == [
        ("acme.f.default", f"alpha-rules 1.0 (entry point 'alpha', {module}.py:3)"),
        ("acme.g", f"alpha-rules 1.0 (entry point 'alpha', {module}.py:3)"),
        # A template has no line of its own: the line that built the strategy.
        ("acme.mm.default", f"alpha-rules 1.0 (entry point 'alpha', {module}.py:9)"),
    ]
    (fallback,) = discovery.fallbacks
    assert (fallback.strategy.name, fallback.origin.plugin) == ("gather", "alpha")


def test_listing_plugins_imports_none_of_them(fake_distribution: Any) -> None:
    module = fake_distribution("alpha-rules", "raise RuntimeError('imported')")
    plugins = list_plugins(read_settings())
    assert "alpha" in {plugin.name for plugin in plugins}
    assert module not in sys.modules


def test_plugins_come_sorted_by_name_whatever_the_path(fake_distribution: Any) -> None:
    fake_distribution("zulu-rules", RULES)
    fake_distribution("alpha-rules", RULES, first=True)
    fake_distribution("mike-rules", RULES, first=True)
    discovery = found("zulu-rules", "alpha-rules", "mike-rules")
    active = [plugin.name for plugin in discovery.plugins if plugin.state == "active"]
    assert active == ["alpha", "mike", "zulu"]


def test_of_two_copies_of_a_distribution_the_one_that_python_would_import_counts(
    fake_distribution: Any,
) -> None:
    fake_distribution("alpha-rules", RULES, version="1.0")
    fake_distribution("Alpha.Rules", RULES, version="2.0", first=True)
    assert named(found("alpha-rules"), "Alpha.Rules").version == "2.0"
    assert len([p for p in list_plugins(read_settings()) if p.name == "alpha"]) == 1


def test_a_required_distribution_that_is_there_is_enough(fake_distribution: Any) -> None:
    fake_distribution("alpha-rules", RULES, version="1.2")
    assert named(found("alpha-rules", required=["Alpha_Rules>=1.2"]), "alpha-rules")


@pytest.mark.parametrize(
    ("required", "message"),
    [
        (
            "nobody-rules>=1",
            "the settings require 'nobody-rules>=1', but no active plugin comes from it;"
            " active: alpha-rules.\n  Install it:  pip install 'nobody-rules>=1'",
        ),
        (
            "alpha-rules>=2",
            "the settings require 'alpha-rules>=2', but alpha-rules 1.2 is installed.\n"
            "  Upgrade it:  pip install 'alpha-rules>=2'",
        ),
    ],
)
def test_a_required_distribution_that_is_missing_or_too_old_is_an_error(
    fake_distribution: Any, required: str, message: str
) -> None:
    fake_distribution("alpha-rules", RULES, version="1.2")
    with pytest.raises(RequiredPluginError) as caught:
        found("alpha-rules", required=[required])
    assert str(caught.value) == message


def test_a_required_distribution_that_is_switched_off_is_not_there(fake_distribution: Any) -> None:
    fake_distribution("alpha-rules", RULES)
    with pytest.raises(RequiredPluginError, match="no active plugin comes from it"):
        found("alpha-rules", required=["alpha-rules"], disabled=["alpha"])


def test_a_requirement_that_is_none_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match=r"required\.0 = '=1': is no requirement"):
        found(required=["=1"])


def test_a_pin_to_a_plugin_that_is_not_there_is_an_error(fake_distribution: Any) -> None:
    fake_distribution("alpha-rules", RULES)
    with pytest.raises(SettingsError) as caught:
        found("alpha-rules", pins={"aten.mm.default": "alhpa"})
    assert str(caught.value) == (
        "pins = {'aten.mm.default': 'alhpa'}: no plugin 'alhpa' is installed; did you mean 'alpha'?"
    )


def test_a_discovery_prints_every_plugin_and_its_state(fake_distribution: Any) -> None:
    module = fake_distribution("alpha-rules", RULES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = str(found("alpha-rules", disabled=["alpha"])).splitlines()
    assert f"alpha-rules 1.0 (entry point 'alpha', {module}): disabled" in lines
