"""Who wins an op: a table of claims and settings, and what each verdict says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from dtensor_registry.discovery import Contribution, Discovery, Fallback, Origin
from dtensor_registry.errors import ConflictingStrategiesError
from dtensor_registry.resolution import Resolution, Verdict, resolve
from dtensor_registry.rules import FallbackStrategy, SingleDimStrategy
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.settings import DEFAULT_ORDER, read_settings
from tests.conftest import PLUGINS_FIRST

MM = "aten.mm.default"


@dataclass(frozen=True)
class Ops:
    """A torch that has these ops, and rules of its own for some."""

    packets: tuple[tuple[str, tuple[str, ...]], ...] = (("aten.mm", ("default", "out")),)
    ruled: tuple[str, ...] = (MM, "aten.mm.out")

    def overloads(self, name: str) -> tuple[str, ...]:
        every = {p: tuple(f"{p}.{o}" for o in overloads) for p, overloads in self.packets}
        if name in every:
            return every[name]
        return (name,) if any(name in overloads for overloads in every.values()) else ()

    def torch_table(self, op: str) -> str | None:
        return "op_single_dim_strategy_funcs" if op in self.ruled else None


def no_rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return []


def claim(plugin: str, op: str = MM, line: int = 1) -> Contribution:
    origin = Origin(plugin, f"{plugin}-rules", "1.0", SourceLine(f"{plugin}.py", line))
    return Contribution(op, SingleDimStrategy(op, no_rows), origin)


def resolved(
    claims: Sequence[Contribution],
    ops: Ops | None = None,
    local: Sequence[Contribution] = (),
    **settings: Any,
) -> Resolution:
    discovery = Discovery((), tuple(claims), ())
    return resolve(discovery, read_settings(**settings), ops or Ops(), local)


def winner(verdict: Verdict) -> str | None:
    return None if verdict.winner is None else verdict.winner.origin.plugin


@pytest.mark.parametrize(
    ("plugins", "settings", "wins", "reason"),
    [
        # the default order: everybody else, corrections, torch, pointwise, matrix, structure
        (["acme"], {}, "acme", "step 0 of 'order' ('*')"),
        (["corrections"], {}, "corrections", "step 1 of 'order' ('corrections')"),
        (["corrections", "acme"], {}, "acme", "step 0 of 'order' ('*')"),
        (["matrix"], {}, None, "step 2 of 'order' ('torch')"),
        (["matrix", "pointwise"], {}, None, "step 2 of 'order' ('torch')"),
        (["matrix", "acme"], {}, "acme", "step 0 of 'order' ('*')"),
        # the list decides
        (["matrix", "acme"], {"order": ["matrix", "*"]}, "matrix", "step 0 of 'order' ('matrix')"),
        (["b", "a"], {"order": ["b", "a"]}, "b", "step 0 of 'order' ('b')"),
        (["b", "a"], {"order": ["*", "b"]}, "a", "step 0 of 'order' ('*')"),
        # whoever the list has no place for takes no part
        (["acme"], {"order": ["matrix"]}, None, "no contribution is left"),
        # torch, ranked above
        (["acme"], {"order": ["torch", "*"]}, None, "step 0 of 'order' ('torch')"),
        (["b", "a"], {"order": ["torch", "*"]}, None, "step 0 of 'order' ('torch')"),
        (["b", "a"], {"order": ["b", "torch", "*"]}, "b", "step 0 of 'order' ('b')"),
        # torch that is not in the list comes last
        (["acme"], {"order": ["*"]}, "acme", "step 0 of 'order' ('*')"),
        # pins beat the list
        (["matrix", "acme"], {"pins": {MM: "matrix"}}, "matrix", "pinned"),
        (["matrix", "acme"], {"pins": {"aten.mm": "matrix"}}, "matrix", "pinned"),
        (
            ["matrix", "acme"],
            {"pins": {"aten.mm": "acme", MM: "matrix"}},
            "matrix",
            "pinned",
        ),
        (["b", "a"], {"pins": {MM: "b"}}, "b", "pinned"),
        (["acme"], {"pins": {MM: "torch"}}, None, "pinned"),
        (["acme"], {"order": ["matrix"], "pins": {MM: "acme"}}, "acme", "pinned"),
        # plugins that are switched off for an op
        (["b", "a"], {"disabled": ["b:aten.mm.*"]}, "a", "step 0 of 'order' ('*')"),
        (["b", "a"], {"disabled": ["b-rules:aten.*"]}, "a", "step 0 of 'order' ('*')"),
        (["a"], {"disabled": ["a:*"]}, None, "no contribution is left"),
        (["a"], {"disabled": ["a:aten.bmm.*"]}, "a", "step 0 of 'order' ('*')"),
        (["a"], {"disabled": ["a:*"], "pins": {MM: "a"}}, None, "no contribution is left"),
        # equal rank, skipped
        (["b", "a"], {"on_conflict": "skip"}, None, "no contribution is left"),
        (
            ["b", "a", "matrix"],
            {"on_conflict": "skip", "order": ["*", "matrix", "torch"]},
            "matrix",
            "step 1 of 'order' ('matrix')",
        ),
        (["b", "a", "matrix"], {"on_conflict": "skip"}, None, "step 2 of 'order' ('torch')"),
        # plugins first
        (
            ["matrix", "pointwise"],
            {"order": PLUGINS_FIRST},
            "pointwise",
            "step 1 of 'order' ('pointwise')",
        ),
    ],
)
def test_the_winner_follows_from_the_settings(
    plugins: list[str], settings: dict[str, Any], wins: str | None, reason: str
) -> None:
    verdict = resolved([claim(plugin) for plugin in plugins], **settings)[MM]
    assert (winner(verdict), verdict.reason) == (wins, reason)
    # Everybody who spoke is accounted for.
    heard = {s.contribution.origin.plugin for s in verdict.shadowed} | {wins} - {None}
    assert heard == set(plugins)


@pytest.mark.parametrize(
    ("plugin", "settings", "step"),
    [
        ("acme", {"order": ["torch", "*"]}, "step 1 of 'order' ('*')"),
        ("matrix", {}, "step 4 of 'order' ('matrix')"),
    ],
)
def test_a_plugin_ranked_after_torch_wins_an_op_that_torch_has_no_rule_for_and_says_so(
    plugin: str, settings: dict[str, Any], step: str
) -> None:
    verdict = resolved([claim(plugin)], Ops(ruled=()), **settings)[MM]
    assert (winner(verdict), verdict.reason) == (plugin, f"{step}; torch has no rule for it")


def test_a_plugin_ranked_before_torch_says_nothing_of_torch() -> None:
    verdict = resolved([claim("acme")], Ops(ruled=()))[MM]
    assert verdict.reason == "step 0 of 'order' ('*')"


@pytest.mark.parametrize("pin", [MM, "aten.mm"])
def test_a_pin_to_torch_keeps_every_plugin_from_an_op_that_torch_has_no_rule_for(pin: str) -> None:
    verdict = resolved([claim("acme"), claim("matrix")], Ops(ruled=()), pins={pin: "torch"})[MM]
    assert (winner(verdict), verdict.reason) == (None, "pinned")
    assert [s.reason for s in verdict.shadowed] == ["torch comes first: pinned"] * 2


def test_rivals_of_equal_rank_behind_torch_are_no_conflict() -> None:
    verdict = resolved([claim("a"), claim("b")], pins={MM: "torch"})[MM]
    assert [s.reason for s in verdict.shadowed] == ["torch comes first: pinned"] * 2


def test_the_shadowed_know_why() -> None:
    claims = [claim(p) for p in ("a", "matrix", "pointwise")]
    verdict = resolved(claims, disabled=["pointwise:aten.*"])[MM]
    assert {s.contribution.origin.plugin: s.reason for s in verdict.shadowed} == {
        "matrix": "a comes first: step 0 of 'order' ('*')",
        "pointwise": "switched off for this op in 'disabled'",
    }


def test_a_conflict_names_both_providers_and_the_first_by_name_in_its_advice() -> None:
    with pytest.raises(ConflictingStrategiesError) as caught:
        resolved([claim("other", line=12), claim("acme", line=41)])
    assert caught.value.plugins == ("acme", "other")
    assert "  acme-rules 1.0 (entry point 'acme', acme.py:41)\n" in str(caught.value)
    assert "  other-rules 1.0 (entry point 'other', other.py:12)\n" in str(caught.value)


@pytest.mark.parametrize("settings", ["order", "pins"])
def test_the_advice_of_a_conflict_ends_it(settings: str) -> None:
    with pytest.raises(ConflictingStrategiesError) as caught:
        resolved([claim("b"), claim("a")])
    first = caught.value.plugins[0]
    advice: dict[str, Any] = {
        "order": [first, *DEFAULT_ORDER],
        "pins": {MM: first},
    }
    verdict = resolved([claim("b"), claim("a")], **{settings: advice[settings]})[MM]
    assert winner(verdict) == first


def test_no_order_of_contributions_changes_the_outcome() -> None:
    claims = [claim("a"), claim("matrix"), claim("pointwise"), claim("b", "aten.mm.out")]
    outcomes = {str(resolved(order)) for order in itertools.permutations(claims)}
    assert len(outcomes) == 1


def test_a_packet_stands_for_all_its_overloads() -> None:
    resolution = resolved([claim("acme", "aten.mm")])
    assert list(resolution.verdicts) == [MM, "aten.mm.out"]


@pytest.mark.parametrize("order", [("aten.mm", MM), (MM, "aten.mm")])
def test_within_a_plugin_an_overload_beats_its_packet(order: tuple[str, str]) -> None:
    resolution = resolved([claim("acme", op) for op in order])
    chosen = {op: v.winner.op for op, v in resolution.verdicts.items() if v.winner}
    assert chosen == {MM: MM, "aten.mm.out": "aten.mm"}


def test_a_packet_and_an_overload_of_two_plugins_conflict() -> None:
    with pytest.raises(ConflictingStrategiesError, match=r"^aten\.mm\.default has 2 providers"):
        resolved([claim("a", "aten.mm"), claim("b", MM)])


def test_a_packet_and_an_overload_conflict_before_their_op_exists_as_well() -> None:
    with pytest.raises(ConflictingStrategiesError):
        resolved([claim("a", "late.op"), claim("b", "late.op.default")])


def test_an_op_that_does_not_exist_yet_is_pending() -> None:
    verdict = resolved([claim("acme", "late.op.default")])["late.op.default"]
    assert verdict.pending
    assert winner(verdict) == "acme"
    assert str(verdict).startswith("late.op.default (pending): acme-rules 1.0")


def test_what_this_process_registers_beats_every_plugin_and_every_pin() -> None:
    verdict = resolved([claim("acme")], local=[claim("local")], pins={MM: "acme"})[MM]
    assert (winner(verdict), verdict.reason) == ("local", "registered in this process")


def test_of_two_registrations_the_latest_wins() -> None:
    first, second = claim("local", line=1), claim("local", line=2)
    assert resolved([], local=[first, second])[MM].winner is second


@pytest.mark.parametrize(
    ("order", "asked"),
    [
        (["*"], ["a", "b", "c"]),
        (["c", "*"], ["c", "a", "b"]),
        (["*", "a"], ["b", "c", "a"]),
        (["b"], ["b"]),
        ([], []),
    ],
)
def test_fallbacks_are_asked_in_the_order_of_their_setting(
    order: list[str], asked: list[str]
) -> None:
    fallbacks = [
        Fallback(FallbackStrategy(name, no_rows), claim("acme").origin) for name in ("c", "a", "b")
    ]
    settings = read_settings(fallback={"order": order})
    resolution = resolve(Discovery((), (), tuple(fallbacks)), settings, Ops())
    assert [fallback.strategy.name for fallback in resolution.fallbacks] == asked


def test_a_verdict_prints_who_won_who_did_not_and_why() -> None:
    assert str(resolved([claim("matrix"), claim("acme")])) == (
        "aten.mm.default: acme-rules 1.0 (entry point 'acme', acme.py:1), step 0 of 'order' ('*')\n"
        "  shadowed: matrix-rules 1.0 (entry point 'matrix', matrix.py:1):"
        " acme comes first: step 0 of 'order' ('*')"
    )
