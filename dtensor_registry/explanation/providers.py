"""Who has something to say about an op, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import torch

from dtensor_registry.discovery import Contribution, Fallback, Origin
from dtensor_registry.explanation import Provider
from dtensor_registry.resolution import REGISTERED, Resolution, Verdict, is_left_to_torch
from dtensor_registry.rules.strategy import SourceLine, rule_name
from dtensor_registry.settings import TORCH, Settings
from dtensor_registry.torch_fake.torch_ways import what_stops
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.decompositions import is_decomposed
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.decision import Decision
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.ops import Op


class Known(Protocol):
    """What is installed: an `Installation`."""

    settings: Settings

    @property
    def resolution(self) -> Resolution:
        """Who won each op, and why."""


def providers_of(
    op: Op, known: Known, decided_by: str, composite: bool, decision: Decision | None = None
) -> tuple[Provider, ...]:
    """List who is asked for an op, first to last; the first that answers decides.

    Args:
        op: the overload.
        known: what is installed.
        decided_by: who decided a call of the op, as `owner` names it, or `nobody`; empty for no
            call.
        composite: whether the op was, or would be, taken into parts.
        decision: what was decided of a call, if there is one.
    """
    found = [*_of_this_process(op), *_resolved(op, known)]
    if composite:
        reason = "torch takes the op into parts first, and rules are asked for those"
        found.insert(0, _by_torch("", "the op's composite kernel", True, reason))
    if decided_by == "decomposition":
        # A plugin's rule was asked first, and has no way to run this call.
        told = "no way to run this call, so torch's decomposition is asked"
        found = [replace(p, decides=False, reason=told) if p.decides else p for p in found]
    if decided_by.startswith("fallback"):
        # A plugin amends what torch does with the op, and torch is not asked.
        told = f"{decided_by} runs the op in torch's place, so there is nothing to amend"
        found = [replace(p, decides=False, reason=told) if p.decides else p for p in found]
    if not any(provider.decides for provider in found):
        parts = [*_decomposition(op, known.settings, decided_by, decision)]
        last = [
            _fallback(f, decided_by, known.settings)
            for f in known.resolution.fallbacks
            if not is_left_to_torch(str(op), known.settings)
        ]
        found += last + parts if known.settings.fallback.before_decomposition else parts + last
    for at, provider in enumerate(found):
        if provider.decides:
            rest = [replace(later, decides=False) for later in found[at + 1 :]]
            return (*found[: at + 1], *rest)
    return tuple(found)


def _of_this_process(op: Op) -> Iterator[Provider]:
    """List what lies over the installation: registrations, and the scopes of contexts."""
    for layer in reversed(LOAN.layers):
        if layer.height == 0 or op not in layer.entries:
            continue
        if layer.program is not None:
            yield _provider(
                layer.program.origin, rule_name(layer.program.function), True, REGISTERED
            )
            continue
        rule = getattr(layer.entries[op].rule, "func", layer.entries[op].rule)
        if isinstance(rule, CorrectedRule):
            told = "registered in this process"
            yield _provider(rule.origin, rule_name(rule.without), True, told)
        elif isinstance(rule, AmendedTorch):
            yield _provider(
                rule.origin, rule_name(rule.amended), True, "registered in this process"
            )
        elif isinstance(rule, InstalledRule):
            if rule.fallback is not None:
                continue
            yield _provider(rule.origin, rule_name(rule.rule), True, "registered in this process")
        else:
            yield Provider(
                "context", "", "", "", rule_name(rule), True, f"in force in {layer.name}"
            )


def _resolved(op: Op, known: Known) -> Iterator[Provider]:
    name = str(op)
    verdict = known.resolution.verdicts.get(name) or Verdict(
        name, op, None, "nobody else has a rule", (), TorchCatalog().torch_table(op)
    )
    torch_first = [s for s in verdict.shadowed if s.reason.startswith("torch comes first")]
    if verdict.winner is not None:
        yield _contributed(verdict.winner, True, verdict.reason)
    yield from (
        _contributed(s.contribution, False, s.reason)
        for s in verdict.shadowed
        if s not in torch_first
    )
    if verdict.torch_table is not None:
        won = verdict.winner is None
        reason = verdict.reason
        if verdict.program is not None:
            reason = f"{verdict.program.plugin} comes first: {verdict.reason}"
        elif verdict.winner is not None:
            reason = f"{verdict.winner.origin.plugin} comes first: {verdict.reason}"
        elif verdict.shadowed and not torch_first:
            reason = "no contribution is left"
        yield _torchs(op, verdict.torch_table, won, reason)
    yield from (_contributed(s.contribution, False, s.reason) for s in torch_first)


def _torchs(op: Op, table: str, decides: bool, reason: str) -> Provider:
    entry = LEDGER.original(table, op)
    function = getattr(entry, "func", entry)
    if table == HANDLERS:
        reason = f"torch runs this op through it, past all rules; {reason}"
        return _by_torch("", f"handler {rule_name(function)}", decides, reason)
    code = getattr(function, "__code__", None)
    source = "" if code is None else str(SourceLine(code.co_filename, code.co_firstlineno))
    return _by_torch(source, f"{rule_name(function)} in {table}", decides, reason)


def _by_torch(source: str, rule: str, decides: bool, reason: str) -> Provider:
    return Provider(TORCH, TORCH, torch.__version__, source, rule, decides, reason)


def _decomposition(
    op: Op, settings: Settings, decided_by: str, decision: Decision | None
) -> Iterator[Provider]:
    if not is_decomposed(op):
        return
    decides = decided_by in ("", "decomposition")
    reason = "torch follows placements through it, since no rule runs the call"
    if decided_by.startswith("fallback") and settings.fallback.before_decomposition:
        reason = f"{decided_by} comes first: fallback.before_decomposition is on"
    elif not decides:
        stopped = None if decision is None else what_stops(decision.schema)
        reason = f"torch cannot follow placements through it: {stopped}"
        if stopped is None:
            reason = "torch can follow placements through it, but not run the call"
    yield _by_torch("", "the op's decomposition", decides, reason)


def _fallback(fallback: Fallback, decided_by: str, settings: Settings) -> Provider:
    name = f"fallback {fallback.strategy.name}"
    decides = decided_by == name
    reason = f"for ops that nobody has a rule for; fallback.mode is {settings.fallback.mode!r}"
    told = _provider(fallback.origin, rule_name(fallback.strategy.rule), decides, reason)
    return replace(told, name=name)


def _contributed(contribution: Contribution, decides: bool, reason: str) -> Provider:
    return _provider(contribution.origin, rule_name(contribution.strategy.rule), decides, reason)


def _provider(origin: Origin, rule: str, decides: bool, reason: str) -> Provider:
    return Provider(
        origin.plugin,
        origin.distribution,
        origin.version,
        str(origin.source),
        rule,
        decides,
        reason,
    )
