"""Who may replace torch's own rules is the user's decision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dtensor_registry as dr
from dtensor_registry.discovery import PluginWarning
from dtensor_registry.errors import SettingsError

PLUGIN = """\
from dtensor_registry import SingleDimStrategy, hookimpl

@hookimpl
def provide_single_dim_strategy():
    ops = ["aten.neg.default", "trust_override.f.default"]
    return [SingleDimStrategy(op, lambda op, args, kwargs: []) for op in ops]
"""
LIBRARY = torch.library.Library("trust_override", "FRAGMENT")
LIBRARY.define("f(Tensor x) -> Tensor")
OWN = "trust_override.f.default"


@pytest.fixture(autouse=True)
def acme(fake_distribution: Any) -> None:
    fake_distribution("acme-rules", PLUGIN)


def winners(**settings: Any) -> dict[str, str]:
    with dr.install(allowed=["acme-rules"], **settings) as installation:
        return {
            op: verdict.winner.origin.plugin if verdict.winner else "torch"
            for op, verdict in installation.resolution.verdicts.items()
        }


@pytest.mark.parametrize("named", [None, ["acme"], ["acme-rules"], ["Acme_Rules"]])
def test_a_plugin_that_may_override_does(named: Any) -> None:
    assert winners(may_override=named) == {"aten.neg.default": "acme", OWN: "acme"}


def test_where_nobody_may_override_plugins_rule_only_what_torch_does_not() -> None:
    assert winners(may_override=[]) == {"aten.neg.default": "torch", OWN: "acme"}


def test_the_resolution_says_why_a_rule_was_passed_over() -> None:
    with dr.install(allowed=["acme-rules"], may_override=[]) as installation:
        (shadowed,) = installation.resolution["aten.neg.default"].shadowed
    assert shadowed.reason == "torch has a rule; not in 'may_override'"


def test_a_pin_does_not_go_round_it() -> None:
    with pytest.raises(SettingsError, match="contributes no rule for aten"):
        winners(may_override=[], pins={"aten.neg.default": "acme"})


def test_what_the_process_registers_by_hand_is_the_users_own_decision() -> None:
    with (
        dr.install(allowed=["acme-rules"], may_override=[]),
        dr.register_single_dim_strategy(torch.ops.aten.neg.default)(dr.pointwise()) as rule,
    ):
        assert rule.strategy.names == ("aten.neg.default",)


def test_an_unknown_name_is_told() -> None:
    with pytest.warns(PluginWarning, match=r"setting 'may_override' names 'amce', .* 'acme'\?"):
        winners(may_override=["amce"])
