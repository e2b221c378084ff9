"""What was contributed, and what the settings make of it; needs no torch."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

from dtensor_registry.diagnosis.findings import Check, judge
from dtensor_registry.discovery import Discovery, Plugin, PluginWarning, discover
from dtensor_registry.discovery.distributions import find_plugins, find_unreadable
from dtensor_registry.discovery.load import Watch
from dtensor_registry.discovery.settings_check import check_pins, check_required, unknown_names
from dtensor_registry.errors import RequiredPluginError, SettingsError
from dtensor_registry.remedies import set_variable
from dtensor_registry.settings import Settings


def find(settings: Settings, watch: Watch | None) -> Discovery:
    """Load all that can be loaded; what is wrong with the rest is told, not raised.

    Args:
        settings: who may take part.
        watch: sees what a plugin does to the process by itself; None without torch.
    """
    lenient = settings.model_copy(update={"on_plugin_error": "skip", "required": (), "pins": {}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return discover(lenient, watch)


def check_settings(settings: Settings, discovery: Discovery, unused_pins: list[str]) -> Check:
    """Hold the names in settings against what is there.

    Args:
        settings: what to look at.
        discovery: what is there.
        unused_pins: what is wrong with pins to plugins that are there.
    """
    failures = [*_wrong_pins(settings, discovery), *unused_pins]
    changed = [
        name
        for name, field in Settings.model_fields.items()
        if getattr(settings, name) != field.get_default(call_default_factory=True)
    ]
    told = f"other than by default: {', '.join(changed)}" if changed else "as by default"
    wrong = "change them; where each comes from:  docs/settings.md"
    return judge("settings", told, failures, _unknown(settings, discovery), wrong)


def check_plugins(settings: Settings, discovery: Discovery) -> Check:
    """Say who takes part, and who was to and could not."""
    plugins = discovery.plugins
    active = [plugin.name for plugin in plugins if plugin.state == "active"]
    failed = [plugin for plugin in plugins if plugin.state == "failed"]
    told = f"{len(active)} active{': ' if active else ''}{', '.join(active)}"
    for state in ("disabled", "not allowed", "failed"):
        others = [plugin.name for plugin in plugins if plugin.state == state]
        if others:
            told += f"; {len(others)} {state}: {', '.join(others)}"
    broken = [f"{plugin.name}, of {plugin}: {plugin.reason}" for plugin in failed]
    missing = [str(error) for error in _missing(settings, discovery)]
    slow = list(_slow(settings, discovery, failed))
    steps = []
    if failed:
        names = set_variable("disabled", _switches(failed))
        steps.append(f"mend it, or switch it off:  {names}")
    if not plugins:
        slow.append("without plugins, torch's own rules are all there is")
        steps.append("pip install dtensor-registry-pointwise dtensor-registry-matrix")
    strict = settings.on_plugin_error == "error"
    failures = [*(broken if strict else ()), *missing]
    return judge("plugins", told, failures, [*(() if strict else broken), *slow], "\n".join(steps))


def check_metadata() -> Check:
    """List the distributions whose metadata cannot be read, or that are there twice."""
    found = [*find_plugins()[1], *find_unreadable()]
    told = f"{len(found)} folder(s) are passed over" if found else "nothing is passed over"
    step = "remove such folders, or install what they belong to anew"
    return judge("metadata", told, (), map(str, found), step)


def _wrong_pins(settings: Settings, discovery: Discovery) -> Iterator[str]:
    for op, plugin in settings.pins.items():
        try:
            check_pins(settings.model_copy(update={"pins": {op: plugin}}), discovery.plugins)
        except SettingsError as error:
            yield str(error)


def _unknown(settings: Settings, discovery: Discovery) -> list[str]:
    fallbacks = [fallback.strategy.name for fallback in discovery.fallbacks]
    return list(unknown_names(settings, discovery.plugins, fallbacks))


def _missing(
    settings: Settings, discovery: Discovery
) -> Iterator[RequiredPluginError | SettingsError]:
    for requirement in settings.required:
        one = settings.model_copy(update={"required": (requirement,)})
        try:
            check_required(one, discovery.plugins)
        except (RequiredPluginError, SettingsError) as error:
            yield error


def _slow(settings: Settings, discovery: Discovery, failed: list[Plugin]) -> Iterator[str]:
    """Give what discovery notes beside failures and unknown names: plugins that load slowly."""
    known = {*_unknown(settings, discovery), *map(str, find_plugins()[1])}
    for note in discovery.notes:
        if note not in known and not any(f" of {plugin} cannot" in note for plugin in failed):
            yield note


def _switches(failed: list[Plugin]) -> list[str]:
    """Name what failed as settings must: of two with one name the distributions are meant."""
    names = Counter(plugin.name for plugin in failed)
    return sorted({p.name if names[p.name] == 1 else p.distribution for p in failed})
