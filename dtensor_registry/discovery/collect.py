"""Load plugins one by one and collect what they contribute.

Every contribution has a known owner, and one broken plugin is one named failure. Nothing
here decides who wins.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import importlib_metadata
import pluggy
from packaging.requirements import InvalidRequirement, Requirement

from dtensor_registry import hookspecs
from dtensor_registry.discovery.checks import (
    RESERVED,
    admit,
    check_pins,
    check_required,
    unknown_names,
)
from dtensor_registry.discovery.values import (
    Contribution,
    Discovery,
    Fallback,
    Origin,
    Plugin,
    normal_name,
    same_distribution,
)
from dtensor_registry.errors import BrokenPluginsError, PluginError
from dtensor_registry.hookspecs import PROJECT
from dtensor_registry.rules import FallbackStrategy, SingleDimStrategy
from dtensor_registry.rules.strategy import rule_source
from dtensor_registry.settings import Settings

HOST = "dtensor-registry"
"""The host's own distribution."""


class PluginWarning(UserWarning):
    """A plugin was left out, or a setting names a plugin that is not there."""


def list_plugins(settings: Settings) -> tuple[Plugin, ...]:
    """List the installed plugins and whether the settings let them take part; imports none.

    Args:
        settings: `disabled` and `allowed` are applied.

    Raises:
        SettingsError: if `pins` names a plugin that is not installed.
    """
    plugins = [admit(plugin, settings) for plugin, _ in _entry_points()]
    check_pins(settings, plugins)
    return tuple(plugins)


def discover(settings: Settings) -> Discovery:
    """Load every admitted plugin and collect what it contributes.

    Args:
        settings: who may take part, and what happens when a plugin is broken.

    Raises:
        BrokenPluginsError: if a plugin is broken and `on_plugin_error` is `error`.
        RequiredPluginError: if a required distribution is missing, too old or switched off.
        SettingsError: if `pins` names a plugin that is not installed.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    plugins: list[Plugin] = []
    contributions: list[Contribution] = []
    fallbacks: list[Fallback] = []
    failures: list[PluginError] = []
    admitted = [(admit(plugin, settings), entry) for plugin, entry in _entry_points()]
    names = Counter(plugin.name for plugin, _ in admitted if plugin.state == "active")
    for plugin, entry_point in admitted:
        if plugin.state == "active":
            try:
                if names[plugin.name] > 1:
                    raise _twin(plugin, [other for other, _ in admitted])
                strategies, others = _collect(manager, plugin, entry_point)
            except PluginError as failure:
                failures.append(failure)
                plugin = replace(plugin, state="failed", reason=failure.cause)
            else:
                contributions += strategies
                fallbacks += others
        plugins.append(plugin)
    if failures and settings.on_plugin_error == "error":
        raise BrokenPluginsError(failures)
    check_required(settings, plugins)
    check_pins(settings, plugins)
    notes = (
        *map(str, failures),
        *unknown_names(settings, plugins, [f.strategy.name for f in fallbacks]),
    )
    for note in notes:
        warnings.warn(note, PluginWarning, stacklevel=2)
    return Discovery(tuple(plugins), tuple(contributions), tuple(fallbacks), notes)


def _entry_points() -> Iterator[tuple[Plugin, importlib_metadata.EntryPoint]]:
    """Find all entry points of the group, in an order that does not follow `sys.path`."""
    found: dict[tuple[str, str, str], tuple[Plugin, importlib_metadata.EntryPoint]] = {}
    seen: set[str] = set()
    for distribution in importlib_metadata.distributions():
        metadata_name = distribution.metadata["Name"]
        if not metadata_name or normal_name(metadata_name) in seen:
            continue  # a second copy further down the path, which Python would not import either
        seen.add(normal_name(metadata_name))
        for entry_point in distribution.entry_points.select(group=PROJECT):
            plugin = Plugin(
                entry_point.name, metadata_name, distribution.version, entry_point.value
            )
            found[plugin.name, normal_name(plugin.distribution), plugin.module] = (
                plugin,
                entry_point,
            )
    for key in sorted(found):
        yield found[key]


def _collect(
    manager: pluggy.PluginManager, plugin: Plugin, entry_point: importlib_metadata.EntryPoint
) -> tuple[list[Contribution], list[Fallback]]:
    """Import one plugin and call its hooks; whatever goes wrong is its failure, by name."""
    _check_host_version(plugin, entry_point)
    if plugin.name in RESERVED:
        raise _failure(plugin, f"the name {plugin.name!r} is reserved for the host")
    try:
        module = entry_point.load()
    except (Exception, SystemExit) as error:
        raise _failure(plugin, f"importing it raised {_show(error)}") from error
    try:
        manager.register(module, name=plugin.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        manager.unregister(name=plugin.name)
        hint = "a misspelt hook, or one of a newer dtensor-registry"
        raise _failure(plugin, f"{error} ({hint})") from error
    if not manager.get_hookcallers(module):
        raise _failure(plugin, f"no function in {plugin.module} is marked @hookimpl")
    others = {p for p in manager.get_plugins() if p is not module}
    strategies = [
        Contribution(name, strategy, _origin(plugin, strategy))
        for strategy in _call(manager, others, plugin, SingleDimStrategy)
        for name in strategy.names
    ]
    counted = Counter(strategy.op for strategy in strategies)
    twice = sorted(op for op, count in counted.items() if count > 1)
    if twice:
        where = [str(s.origin.source) for s in strategies if s.op == twice[0]]
        raise _failure(plugin, f"it claims {twice[0]} twice, at {' and '.join(where)}")
    fallbacks = [
        Fallback(strategy, _origin(plugin, strategy))
        for strategy in _call(manager, others, plugin, FallbackStrategy)
    ]
    return strategies, fallbacks


def _call(
    manager: pluggy.PluginManager, others: set[Any], plugin: Plugin, kind: type[Any]
) -> list[Any]:
    single = kind is SingleDimStrategy
    hook = "provide_single_dim_strategy" if single else "provide_fallback"
    try:
        returned = manager.subset_hook_caller(hook, others)()
        items = [item for batch in returned for item in batch]
    except (Exception, SystemExit) as error:
        raise _failure(plugin, f"its hook {hook} raised {_show(error)}") from error
    for item in items:
        if not isinstance(item, kind):
            raise _failure(
                plugin,
                f"its hook {hook} returned a {type(item).__name__} ({item!r}) among its results;"
                f" every one must be a {kind.__name__}",
            )
    return items


def _check_host_version(plugin: Plugin, entry_point: importlib_metadata.EntryPoint) -> None:
    try:
        here = importlib_metadata.version(HOST)
    except importlib_metadata.PackageNotFoundError:
        return  # run from a source tree; there is no version to compare
    for text in (entry_point.dist.requires if entry_point.dist else None) or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # pip's business; it would not have installed it
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue  # needed by an extra, or on another system
        if same_distribution(requirement.name, HOST) and not requirement.specifier.contains(
            here, True
        ):
            raise _failure(plugin, f"it needs {HOST}{requirement.specifier}, this is {here}")


def _twin(plugin: Plugin, installed: list[Plugin]) -> PluginError:
    """Two active plugins of one name could not be told apart in any setting."""
    others = [other for other in installed if other.name == plugin.name and other != plugin]
    cause = f"its entry point has the same name as that of {', '.join(map(str, others))}"
    # The name would switch off both, so the error says to name the distribution.
    return PluginError(plugin.distribution, str(plugin), cause)


def _origin(plugin: Plugin, strategy: SingleDimStrategy | FallbackStrategy) -> Origin:
    return Origin(plugin.name, plugin.distribution, plugin.version, rule_source(strategy))


def _failure(plugin: Plugin, cause: str) -> PluginError:
    return PluginError(plugin.name, str(plugin), cause)


def _show(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
