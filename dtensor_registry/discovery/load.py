"""Load one plugin and ask its hooks; whatever else it does is its failure, by name."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from threading import get_ident
from typing import Any, TypeAlias

import importlib_metadata
import pluggy
from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from dtensor_registry.discovery.settings_check import RESERVED
from dtensor_registry.discovery.values import (
    Contribution,
    Fallback,
    Origin,
    Plugin,
    same_distribution,
)
from dtensor_registry.errors import InstallError, PluginError
from dtensor_registry.rules import FallbackStrategy, SingleDimStrategy
from dtensor_registry.rules.strategy import rule_source

HOST = "dtensor-registry"
"""The host's own distribution."""

MAX_STRATEGIES = 20_000
"""Strategies that one hook may give. torch has some 3000 ops; a generator may have no end."""

SLOW = 10.0
"""Seconds after which a plugin's loading is told: every rank pays them at every start."""

PATIENCE = 5.0
"""Seconds that one thread waits for another which is loading plugins."""

Watch: TypeAlias = Callable[[], Callable[[], str | None]]
"""Called before a plugin is loaded; what it returns, called after, undoes what the plugin did to
the process by itself, and says what that was."""

_loading: dict[int, str] = {}
"""The plugin that each thread is loading."""


def load(
    manager: pluggy.PluginManager,
    plugin: Plugin,
    entry_point: importlib_metadata.EntryPoint,
    watch: Watch | None,
) -> tuple[list[Contribution], list[Fallback], list[str]]:
    """Import one plugin and call its hooks.

    Args:
        manager: holds the plugins that are loaded already.
        plugin: who it is.
        entry_point: how to import it.
        watch: sees what it does to the process, or None.

    Returns:
        Its strategies, its fallbacks, and what the user should know.

    Raises:
        PluginError: if it cannot be used.
    """
    _check_host_version(plugin, entry_point)
    if plugin.name in RESERVED:
        raise _failure(plugin, f"the name {plugin.name!r} is reserved for the host")
    undo = None if watch is None else watch()
    started = time.monotonic()
    try:
        with _alone(plugin):
            strategies, fallbacks = _collect(manager, plugin, entry_point)
    finally:
        trespass = None if undo is None else undo()
    if trespass is not None:
        manager.unregister(name=plugin.name)
        raise _failure(
            plugin, f"{trespass}. This was undone; contribute strategies through the hooks"
        )
    seconds = time.monotonic() - started
    told = f"plugin {plugin.name!r} of {plugin} took {seconds:.1f} s to load, on every rank"
    return strategies, fallbacks, [told] if seconds > SLOW else []


def refuse_nested() -> None:
    """Refuse to look for plugins while one of them is being loaded.

    Raises:
        InstallError: naming the plugin.
    """
    plugin = _loading.get(get_ident())
    if plugin is not None:
        raise InstallError(
            f"plugin {plugin!r} looks for plugins, or installs, while it is loaded itself.\n"
            "  A plugin gives strategies through its hooks; to install is the program's business."
        )
    refuse_beside_loading()


def refuse_beside_loading() -> None:
    """Refuse to wait for ever for another thread that is loading a plugin, which may wait for us.

    Raises:
        InstallError: naming the plugin, if that takes longer than `PATIENCE`.
    """
    deadline = time.monotonic() + PATIENCE
    while others := [plugin for thread, plugin in list(_loading.items()) if thread != get_ident()]:
        if time.monotonic() < deadline:
            time.sleep(0.001)
            continue
        raise InstallError(
            f"plugin {others[0]!r} is being loaded by another thread, which may be waiting for"
            " this one.\n  A plugin must not install from a thread of its own; the program"
            " installs in one thread, before it starts others."
        )


def _forget_other_threads() -> None:
    """In a forked process there is the thread that forked, and no other."""
    for thread in set(_loading) - {get_ident()}:
        del _loading[thread]


os.register_at_fork(after_in_child=_forget_other_threads)


@contextmanager
def _alone(plugin: Plugin) -> Iterator[None]:
    """Keep what a plugin prints out of our own output, and it from loading plugins itself."""
    _loading[get_ident()] = plugin.name
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _loading.pop(get_ident(), None)


def _collect(
    manager: pluggy.PluginManager, plugin: Plugin, entry_point: importlib_metadata.EntryPoint
) -> tuple[list[Contribution], list[Fallback]]:
    module = _guarded(plugin, "importing it", entry_point.load)
    try:
        manager.register(module, name=plugin.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        manager.unregister(name=plugin.name)
        hint = "a misspelt hook, or one of a newer dtensor-registry"
        raise _failure(plugin, f"{error} ({hint})") from error
    callers = manager.get_hookcallers(module)
    if not callers:
        raise _failure(plugin, f"no function in {plugin.module} is marked @hookimpl")
    others = {p for p in manager.get_plugins() if p is not module}
    hooks = {caller.name for caller in callers}
    strategies = [
        Contribution(name, strategy, _origin(plugin, strategy))
        for strategy in _call(manager, others, plugin, SingleDimStrategy, hooks)
        for name in strategy.names
    ]
    counted = Counter(strategy.op for strategy in strategies)
    twice = sorted(op for op, count in counted.items() if count > 1)
    if twice:
        where = [str(s.origin.source) for s in strategies if s.op == twice[0]]
        raise _failure(plugin, f"it claims {twice[0]} twice, at {' and '.join(where)}")
    fallbacks = [
        Fallback(strategy, _origin(plugin, strategy))
        for strategy in _call(manager, others, plugin, FallbackStrategy, hooks)
    ]
    return strategies, fallbacks


def _call(
    manager: pluggy.PluginManager,
    others: set[Any],
    plugin: Plugin,
    kind: type[Any],
    hooks: set[str],
) -> list[Any]:
    single = kind is SingleDimStrategy
    hook = "provide_single_dim_strategy" if single else "provide_fallback"
    returned = _guarded(plugin, f"its hook {hook}", manager.subset_hook_caller(hook, others))
    if hook in hooks and not returned:
        raise _failure(plugin, f"its hook {hook} returned None; return an empty list for nothing")
    items: list[Any] = []
    for batch in returned:
        if not isinstance(batch, Iterable):
            shown = _safe(repr, batch)
            raise _failure(plugin, f"its hook {hook} returned {shown}, which is no iterable")
        rest = _guarded(plugin, f"its hook {hook}", lambda: iter(batch))  # noqa: B023
        end = object()
        while (item := _guarded(plugin, f"its hook {hook}", lambda: next(rest, end))) is not end:  # noqa: B023
            if not isinstance(item, kind):
                raise _failure(
                    plugin,
                    f"its hook {hook} returned a {type(item).__name__} ({_safe(repr, item)}) among"
                    f" its results; every one must be a {kind.__name__}",
                )
            items.append(item)
            if len(items) > MAX_STRATEGIES:
                raise _failure(plugin, f"its hook {hook} gives more than {MAX_STRATEGIES} results")
    return items


def _guarded(plugin: Plugin, what: str, call: Callable[[], Any]) -> Any:
    """Call a plugin; all that it raises is its failure, but for the user's own Ctrl-C."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        told = f"{what} raised {type(error).__name__}: {_safe(str, error)}"
        raise _failure(plugin, told) from error


def _safe(show: Callable[[Any], str], value: Any) -> str:
    """Show a plugin's value by code of the plugin, which may raise in its turn."""
    try:
        return show(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<it raised {type(error).__name__} when it was to be shown>"


def _check_host_version(plugin: Plugin, entry_point: importlib_metadata.EntryPoint) -> None:
    try:
        here = importlib_metadata.version(HOST)
    except importlib_metadata.PackageNotFoundError:
        return  # run from a source tree; there is no version to compare
    for text in (entry_point.dist.requires if entry_point.dist else None) or ():
        try:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue  # needed by an extra, or on another system
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
            continue  # pip's business; it would not have installed it
        if same_distribution(requirement.name, HOST) and not requirement.specifier.contains(
            here, True
        ):
            raise _failure(plugin, f"it needs {HOST}{requirement.specifier}, this is {here}")


def _origin(plugin: Plugin, strategy: SingleDimStrategy | FallbackStrategy) -> Origin:
    return Origin(plugin.name, plugin.distribution, plugin.version, rule_source(strategy))


def _failure(plugin: Plugin, cause: str) -> PluginError:
    return PluginError(plugin.name, str(plugin), cause)
