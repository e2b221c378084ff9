"""What the settings say about plugins, held against the plugins that are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from shlex import quote

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from dtensor_registry.discovery.distributions import folder_of
from dtensor_registry.discovery.values import LOCAL, PROGRAM, Plugin, normal_name, same_distribution
from dtensor_registry.errors import RequiredPluginError, SettingsError
from dtensor_registry.settings import DEFAULT_ORDER, EVERYBODY_ELSE, TORCH, Settings, nearest

RESERVED = (TORCH, LOCAL, PROGRAM, EVERYBODY_ELSE)
"""Names that no plugin can have, since they mean something else in settings."""


def is_disabled_for(settings: Settings, plugin: str, distribution: str, op: str) -> bool:
    """Say whether a `plugin:op-glob` entry of `disabled` takes one op from a plugin."""
    return any(
        (name == plugin or same_distribution(name, distribution)) and fnmatchcase(op, glob)
        for entry in settings.disabled
        for name, glob in _split(entry)
    )


def _split(entry: str) -> Iterator[tuple[str, str]]:
    """Read `plugin:op-glob` in every way, since names of plugins may have colons too.

    >>> list(_split("a:b:aten.*"))
    [('a', 'b:aten.*'), ('a:b', 'aten.*')]
    """
    parts = entry.split(":")
    for at in range(1, len(parts)):
        yield ":".join(parts[:at]), ":".join(parts[at:])


def admit(plugin: Plugin, settings: Settings) -> Plugin:
    """Apply `disabled` and `allowed` to a plugin, before anything of it is imported."""
    for name in settings.disabled:
        if plugin.answers_to(name):
            return replace(plugin, state="disabled", reason=f"{name!r} in setting 'disabled'")
    if settings.allowed is not None and not any(
        same_distribution(name, plugin.distribution) for name in settings.allowed
    ):
        reason = f"{plugin.distribution!r} is not in setting 'allowed'"
        return replace(plugin, state="not allowed", reason=reason)
    return plugin


def may_override(settings: Settings, plugin: str, distribution: str) -> bool:
    """Say whether a plugin may replace rules of torch's own."""
    named = settings.may_override
    return named is None or any(
        name == plugin or same_distribution(name, distribution) for name in named
    )


def is_required(settings: Settings, distribution: str) -> bool:
    """Say whether the settings require a distribution."""
    names = (Requirement(text).name for text in settings.required)
    return any(same_distribution(name, distribution) for name in names)


def check_required(settings: Settings, plugins: Iterable[Plugin]) -> None:
    """Hold `required` against the active plugins.

    Raises:
        RequiredPluginError: if one is missing, too old or switched off.
    """
    active = {normal_name(p.distribution): p for p in plugins if p.state == "active"}
    for text in settings.required:
        requirement = Requirement(text)
        plugin = active.get(normal_name(requirement.name))
        if plugin is None:
            there = ", ".join(sorted(p.distribution for p in active.values())) or "none"
            problem = f"no active plugin comes from it; active: {there}"
            folder = folder_of(requirement.name)
            if folder is not None and not any(
                same_distribution(requirement.name, other.distribution) for other in plugins
            ):
                problem += f". It is installed in {folder}, which declares no plugin"
            raise RequiredPluginError(text, problem, f"Install it:  pip install {quote(text)}")
        if not _fits(requirement, plugin.version):
            problem = f"{plugin.distribution} {plugin.version} is installed"
            raise RequiredPluginError(text, problem, f"Upgrade it:  pip install {quote(text)}")


def _fits(requirement: Requirement, version: str) -> bool:
    """Hold a version against a requirement; one that is no version fits only where none is asked.

    >>> _fits(Requirement("acme>=1"), "2.0"), _fits(Requirement("acme>=1"), "latest")
    (True, False)
    """
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return not requirement.specifier


def check_pins(settings: Settings, plugins: Iterable[Plugin]) -> None:
    """Hold `pins` against the installed plugins.

    Raises:
        SettingsError: if a pin names a plugin that is not there.
    """
    names = {plugin.name for plugin in plugins} | {TORCH, LOCAL}
    for op, plugin in settings.pins.items():
        if plugin not in names:
            raise SettingsError(
                f"pins = {{{op!r}: {plugin!r}}}: no plugin {plugin!r} is installed;"
                f" {nearest(plugin, names)}"
            )


def unknown_names(
    settings: Settings, plugins: Sequence[Plugin], fallbacks: Iterable[str] | None = None
) -> Iterator[str]:
    """Say which names in lists of the settings nothing answers to, with the nearest that does.

    Args:
        settings: lists of plugins, distributions and fallbacks.
        plugins: all that are installed.
        fallbacks: names of those that active plugins contribute; None while no plugin is loaded.
    """
    names = {plugin.name for plugin in plugins}
    distributions = {plugin.distribution for plugin in plugins}
    lists: dict[str, tuple[Iterable[str], set[str]]] = {
        "disabled": (settings.disabled, names | distributions | {p.module for p in plugins}),
        "allowed": (settings.allowed or (), distributions),
        "may_override": (settings.may_override or (), names | distributions),
    }
    # A step of the default order need not be installed, also where the list is written out.
    lists["order"] = [name for name in settings.order if name not in DEFAULT_ORDER], names
    if fallbacks is not None:
        lists["fallback.order"] = settings.fallback.order, set(fallbacks)
        lists["fallback.ops"] = settings.fallback.ops, set(fallbacks)
    for field, (entries, known) in lists.items():
        normal = {normal_name(name) for name in known & distributions}
        for entry in entries:
            names_meant = [entry, *(name for name, _ in _split(entry))]
            if any(n in RESERVED or n in known or normal_name(n) in normal for n in names_meant):
                continue
            name = names_meant[1] if len(names_meant) > 1 else entry
            hint = nearest(name, known)
            yield f"setting {field!r} names {name!r}, which is not installed; {hint}"
