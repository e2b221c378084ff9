"""Who may take part: deny and allow lists act before import, and unknown names are told."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dtensor_registry.discovery import PluginWarning, discover
from dtensor_registry.settings import read_settings

BOMB = "raise RuntimeError('imported')"


@pytest.fixture
def bomb(fake_distribution: Any) -> str:
    """A plugin that cannot be imported; its distribution is alpha-rules, its name alpha."""
    module: str = fake_distribution("alpha-rules", BOMB)
    return module


@pytest.mark.parametrize("name", ["alpha", "alpha-rules", "Alpha_Rules", "{module}"])
def test_a_denied_plugin_is_not_imported(bomb: str, name: str) -> None:
    name = name.format(module=bomb)
    discovery = discover(read_settings(allowed=["alpha-rules"], disabled=[name]))
    (plugin,) = [p for p in discovery.plugins if p.name == "alpha"]
    assert (plugin.state, plugin.reason) == ("disabled", f"'{name}' in setting 'disabled'")
    assert bomb not in sys.modules


def test_an_empty_allow_list_admits_nobody(bomb: str) -> None:
    discovery = discover(read_settings(allowed=[]))
    assert {plugin.state for plugin in discovery.plugins} == {"not allowed"}
    assert bomb not in sys.modules
    (plugin,) = [p for p in discovery.plugins if p.name == "alpha"]
    assert plugin.reason == "'alpha-rules' is not in setting 'allowed'"


def test_a_glob_of_ops_lets_the_plugin_itself_take_part(fake_distribution: Any) -> None:
    source = """\
    from dtensor_registry import SingleDimStrategy, hookimpl, einsum

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("acme.f.default", einsum("mk,kn->mn"))]
    """
    fake_distribution("alpha-rules", source)
    discovery = discover(read_settings(allowed=["alpha-rules"], disabled=["alpha:aten.*"]))
    assert [c.op for c in discovery.contributions] == ["acme.f.default"]
    assert discovery.notes == ()


@pytest.mark.parametrize(
    ("setting", "value", "note"),
    [
        (
            "disabled",
            ["alpha", "alhpa"],
            "setting 'disabled' names 'alhpa', which is not installed; did you mean 'alpha'?",
        ),
        (
            "disabled",
            ["alpha", "alhpa:aten.*"],
            "setting 'disabled' names 'alhpa', which is not installed; did you mean 'alpha'?",
        ),
        (
            "allowed",
            ["alhpa-rules"],
            "setting 'allowed' names 'alhpa-rules', which is not installed;"
            " did you mean 'alpha-rules'?",
        ),
    ],
)
def test_an_unknown_name_in_a_list_is_told_with_what_was_found(
    bomb: str, setting: str, value: list[str], note: str
) -> None:
    lists = {"allowed": [], setting: value}
    with pytest.warns(PluginWarning) as told:
        discovery = discover(read_settings(**lists))
    assert [str(warning.message) for warning in told] == [note]
    assert discovery.notes == (note,)


def test_an_unknown_name_like_no_other_is_told_with_all_that_are_installed(bomb: str) -> None:
    with pytest.warns(PluginWarning, match=r"known: .*\balpha, alpha-rules"):
        discover(read_settings(allowed=[], disabled=["zzzzzzzz"]))


def test_an_unknown_name_in_the_order_is_told(bomb: str) -> None:
    with pytest.warns(PluginWarning, match="setting 'order' names 'alhpa'"):
        discover(read_settings(allowed=[], order=["alhpa", "*", "torch"]))


def test_the_default_order_names_plugins_that_need_not_be_there(bomb: str) -> None:
    assert discover(read_settings(allowed=[])).notes == ()


def test_an_unknown_fallback_in_its_order_is_told(bomb: str) -> None:
    with pytest.warns(PluginWarning, match="'no-such-fallback'"):
        discover(read_settings(allowed=[], fallback={"order": ["no-such-fallback", "*"]}))


def test_a_distribution_in_the_order_is_told_since_the_order_goes_by_plugin_names(
    bomb: str,
) -> None:
    with pytest.warns(PluginWarning, match="setting 'order' names 'alpha-rules'"):
        discover(read_settings(allowed=[], order=["alpha-rules", "*", "torch"]))


def test_a_plugin_name_among_the_allowed_is_told_since_that_list_is_of_distributions(
    bomb: str,
) -> None:
    with pytest.warns(PluginWarning, match="setting 'allowed' names 'alpha'"):
        discover(read_settings(allowed=["alpha"]))
