"""Find plugins, load them one by one, and collect what they contribute.

Every contribution has a known owner, and one broken plugin is one named failure. Nothing
here decides who wins.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import pluggy

from dtensor_registry import hookspecs
from dtensor_registry.discovery.distributions import Declared, find_plugins
from dtensor_registry.discovery.load import Watch, load, refuse_nested
from dtensor_registry.discovery.settings_check import (
    admit,
    check_pins,
    check_required,
    unknown_names,
)
from dtensor_registry.discovery.values import Contribution, Discovery, Fallback, Plugin
from dtensor_registry.errors import BrokenPluginsError, PluginError
from dtensor_registry.hookspecs import PROJECT
from dtensor_registry.settings import Settings


class PluginWarning(UserWarning):
    """A plugin was left out, or a setting names a plugin that is not there."""


def list_plugins(settings: Settings) -> tuple[Plugin, ...]:
    """List the installed plugins and whether the settings let them take part; imports none.

    Args:
        settings: `disabled` and `allowed` are applied.

    Raises:
        SettingsError: if `pins` names a plugin that is not installed.
    """
    plugins = [_admitted(found, settings) for found in find_plugins()[0]]
    check_pins(settings, plugins)
    return tuple(plugins)


def _admitted(found: Declared, settings: Settings) -> Plugin:
    """Apply the settings; what takes part and cannot be read has failed already."""
    plugin = admit(found.plugin, settings)
    if plugin.state == "active" and found.problem:
        return replace(plugin, state="failed", reason=found.problem)
    return plugin


def discover(settings: Settings, watch: Watch | None = None) -> Discovery:
    """Load every admitted plugin and collect what it contributes.

    Args:
        settings: who may take part, and what happens when a plugin is broken.
        watch: sees what each plugin does to the process by itself, which is a failure.

    Raises:
        BrokenPluginsError: if a plugin is broken and `on_plugin_error` is `error`.
        InstallError: from within a plugin that is being loaded.
        RequiredPluginError: if a required distribution is missing, too old or switched off.
        SettingsError: if `pins` names a plugin that is not installed.
    """
    refuse_nested()
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    plugins: list[Plugin] = []
    contributions: list[Contribution] = []
    fallbacks: list[Fallback] = []
    failures: list[PluginError] = []
    told: list[str] = []
    declared, passed_over = find_plugins()
    admitted = [(_admitted(found, settings), found.entry_point) for found in declared]
    names = Counter(plugin.name for plugin, _ in admitted if plugin.state == "active")
    for plugin, entry_point in admitted:
        if plugin.state == "failed":
            failures.append(PluginError(plugin.name, str(plugin), plugin.reason))
        elif entry_point is not None and plugin.state == "active":
            try:
                if names[plugin.name] > 1:
                    raise _twin(plugin, [other for other, _ in admitted])
                strategies, others, notes = load(manager, plugin, entry_point, watch)
            except PluginError as failure:
                failures.append(failure)
                plugin = replace(plugin, state="failed", reason=failure.cause)
            else:
                contributions += strategies
                fallbacks += others
                told += notes
        plugins.append(plugin)
    if failures and settings.on_plugin_error == "error":
        raise BrokenPluginsError(failures)
    check_required(settings, plugins)
    check_pins(settings, plugins)
    told = [
        *map(str, failures),
        *told,
        *(str(other) for other in passed_over if other.may_mislead),
        *unknown_names(settings, plugins, [f.strategy.name for f in fallbacks]),
    ]
    for note in told:
        warnings.warn(note, PluginWarning, stacklevel=2)
    return Discovery(tuple(plugins), tuple(contributions), tuple(fallbacks), tuple(told))


def _twin(plugin: Plugin, installed: list[Plugin]) -> PluginError:
    """Two active plugins of one name could not be told apart in any setting."""
    others = [other for other in installed if other.name == plugin.name and other != plugin]
    cause = f"its entry point has the same name as that of {', '.join(map(str, others))}"
    # The name would switch off both, so the error says to name the distribution.
    return PluginError(plugin.distribution, str(plugin), cause)
