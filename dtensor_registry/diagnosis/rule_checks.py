"""Who would win what: conflicts, ops that do not exist, rules that torch would pass over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dtensor_registry.diagnosis.findings import Check, judge
from dtensor_registry.discovery import LOCAL, Discovery
from dtensor_registry.discovery.distributions import declared_in
from dtensor_registry.errors import (
    ConflictingStrategiesError,
    InstallError,
    RegistryError,
    SettingsError,
)
from dtensor_registry.resolution import Resolution, check_pins_are_used, resolve
from dtensor_registry.rules import Without
from dtensor_registry.settings import TORCH, Settings
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_patch.unknown_ops import unknown_ops
from dtensor_registry.torch_patch.winners import Winners

CORRECTIONS = "dtensor_registry.corrections"
"""Group of the entry point whose module says what of the corrections torch needs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What resolution makes of what was discovered.

    Attributes:
        resolution: with neither side of a conflict.
        conflicts: an error for each op in conflict.
        unused_pins: what is wrong with pins.
        left_out: rules that do not fit their op, as that is in this torch.
        refused: why nothing could be put in force, or None.
    """

    resolution: Resolution
    conflicts: tuple[str, ...]
    unused_pins: tuple[str, ...]
    left_out: tuple[str, ...]
    refused: str | None


def settle(settings: Settings, discovery: Discovery) -> Outcome:
    """Resolve as `install()` does, and go on where it would stop."""
    known = {TORCH, LOCAL, *(plugin.name for plugin in discovery.plugins)}
    pins = {op: plugin for op, plugin in settings.pins.items() if plugin in known}
    lenient = settings.model_copy(update={"on_conflict": "skip", "pins": pins})
    winners = Winners(discovery, lenient)
    refused = None
    try:
        winners.entries()
    except RegistryError as error:
        refused = str(error)
    return Outcome(
        winners.resolution,
        tuple(_conflicts(lenient, winners.resolution, discovery)),
        tuple(_unused_pins(lenient, winners.resolution)),
        winners.left_out(),
        refused,
    )


def check_conflicts(settings: Settings, outcome: Outcome) -> Check:
    """List the ops that several plugins claim with equal right."""
    found = outcome.conflicts
    strict = settings.on_conflict == "error"
    told = f"{len(found)} op(s) are claimed with equal right" if found else "none"
    nobody = () if strict else found
    return judge(
        "conflicts", told, found if strict else (), nobody, "put one first, as each of them says"
    )


def check_rules(outcome: Outcome) -> Check:
    """Say how many ops plugins rule, and which rules reach nothing."""
    verdicts = outcome.resolution.verdicts.values()
    owners = Counter(v.winner.origin.plugin for v in verdicts if v.winner is not None)
    over_torch = sum(v.winner is not None and v.torch_table is not None for v in verdicts)
    pending = sum(v.pending for v in verdicts)
    told = f"{sum(owners.values())} ops ruled by plugins"
    if owners:
        told += f" ({', '.join(f'{name} {count}' for name, count in sorted(owners.items()))})"
    told += f", {over_torch} in place of torch, {pending} pending"
    refused = () if outcome.refused is None else (outcome.refused,)
    return judge(
        "rules",
        told,
        refused,
        (*outcome.left_out, *unknown_ops(outcome.resolution)),
        "tell the plugin's author; who has which rule:  dtensor-registry ops",
    )


def check_corrections(discovery: Discovery, tried: bool) -> Iterator[Check]:
    """List what plugins mend of torch's, and this torch does not need.

    Args:
        discovery: whose plugins.
        tried: run the counterexamples, too; that takes some seconds.

    What runs them is in the authors' kit, which is found by its entry point.
    """
    corrected = [
        c
        for c in discovery.contributions
        if isinstance(c.strategy.rule, Without) or c.strategy.shows
    ]
    if not corrected:
        return
    told = f"plugins mend what torch has wrong for {len({c.op for c in corrected})} op(s)"
    needed = next((found.load() for found in declared_in(CORRECTIONS)), None)
    if needed is None:
        step = "pip install dtensor-registry-kit" if tried else ""
        told += "; whether this torch needs it was not looked at"
        yield Check("corrections", "warn" if tried else "ok", told, next_step=step)
        return
    absent = needed.rows_not_there(discovery)
    if absent:
        told += f"; {len(absent)} row(s) are not in this torch's rules"
    if not tried:
        yield Check("corrections", "ok", told, absent)
        return
    try:
        right = needed.right_without(discovery)
    except InstallError as error:
        step = "in a process of its own:  dtensor-registry doctor --corrections"
        yield Check("corrections", "warn", told, (*absent, f"not tried: {error}"), step)
        return
    told += f"; this torch has {len(right)} counterexample(s) right without"
    yield Check("corrections", "ok", told, (*absent, *right))


def _conflicts(settings: Settings, resolution: Resolution, discovery: Discovery) -> Iterator[str]:
    strict = settings.model_copy(update={"on_conflict": "error"})
    for verdict in resolution.verdicts.values():
        if verdict.winner is None and len(verdict.shadowed) > 1:
            claims = tuple(shadowed.contribution for shadowed in verdict.shadowed)
            try:
                resolve(replace(discovery, contributions=claims), strict, TorchCatalog())
            except ConflictingStrategiesError as error:
                yield str(error)


def _unused_pins(settings: Settings, resolution: Resolution) -> Iterator[str]:
    for op, plugin in settings.pins.items():
        try:
            check_pins_are_used(resolution, settings.model_copy(update={"pins": {op: plugin}}))
        except SettingsError as error:
            yield str(error)
