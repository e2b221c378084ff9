"""Which installed distributions declare plugins, whatever state their metadata is in.

A distribution's folder can be left behind empty, lack its name, hold bytes that are no text, or
be there twice. Other people's are passed over; one that carries our entry-point group and cannot
be read is a broken plugin, named with its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import importlib_metadata
from packaging.version import InvalidVersion, Version

from dtensor_registry.discovery.values import Plugin, normal_name
from dtensor_registry.hookspecs import PROJECT

UNREADABLE = "(unreadable)"
"""Stands for the module of a plugin whose entry points cannot be read."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One plugin as its distribution declares it.

    Attributes:
        plugin: who it is.
        entry_point: how to import it; None if it cannot be read.
        problem: why it cannot be used, empty if nothing speaks against it so far.
    """

    plugin: Plugin
    entry_point: importlib_metadata.EntryPoint | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A distribution that is not looked at.

    Attributes:
        folder: of its metadata.
        why: what is wrong with it.
        may_mislead: whether a user can take it for a plugin that takes part.
    """

    folder: str
    why: str
    may_mislead: bool = False

    def __str__(self) -> str:
        return f"{self.folder}: {self.why}"


@dataclass(frozen=True, slots=True)
class _Copy:
    """One folder of metadata; `problem` is empty if it can be read."""

    folder: str
    name: str
    version: str
    entry_points: tuple[importlib_metadata.EntryPoint, ...]
    carries: bool
    problem: str

    @property
    def says(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.version, tuple(sorted((e.name, e.value) for e in self.entry_points))


def find_plugins() -> tuple[list[Declared], list[PassedOver]]:
    """Find what declares plugins, in an order that does not follow `sys.path`.

    Returns:
        The plugins; and the copies of their distributions that others stand in front of.
    """
    by_name: dict[str, list[Any]] = {}
    for distribution in _each_once():
        by_name.setdefault(normal_name(_stem(distribution)[0]), []).append(distribution)
    declared: list[Declared] = []
    passed_over: list[PassedOver] = []
    for found in by_name.values():
        if any(_carries(distribution) for distribution in found):
            copies = [_read(distribution) for distribution in found]
            chosen = _choose(copies)
            declared += _declared(chosen)
            passed_over += _others(chosen, copies)
    declared.sort(key=lambda d: (d.plugin.name, normal_name(d.plugin.distribution), _module(d)))
    return declared, sorted(passed_over, key=str)


def find_unreadable() -> list[PassedOver]:
    """List the distributions without our entry points whose metadata cannot be read."""
    copies = (_read(d) for d in _each_once() if not _carries(d))
    return sorted((PassedOver(c.folder, c.problem) for c in copies if c.problem), key=str)


def declared_in(group: str) -> Iterator[importlib_metadata.EntryPoint]:
    """Give the entry points of a group of all distributions that can be read."""
    for distribution in _each_once():
        with suppress(Exception):  # reported by `find_unreadable`
            yield from distribution.entry_points.select(group=group)


def folder_of(distribution: str) -> str | None:
    """Find where a distribution is installed, whether it declares plugins or not."""
    wanted = normal_name(distribution)
    found = (d for d in _each_once() if normal_name(_stem(d)[0]) == wanted)
    return next(map(_folder, found), None)


def _each_once() -> Iterator[Any]:
    seen: set[str] = set()
    for distribution in importlib_metadata.distributions():
        place = os.path.realpath(_folder(distribution))
        if place not in seen:
            seen.add(place)
            yield distribution


def _folder(distribution: Any) -> str:
    """Give the folder of a distribution's metadata; what comes from no folder is shown itself."""
    return str(getattr(distribution, "_path", None) or f"{distribution!r}")


def _stem(distribution: Any) -> tuple[str, str]:
    """Read name and version from the name of the folder; from its metadata where that says none."""
    stem, dot, kind = os.path.basename(_folder(distribution)).rpartition(".")
    if dot and kind in ("dist-info", "egg-info"):
        name, _, version = stem.partition("-")
        return name, version.partition("-")[0] or "?"
    try:
        return str(distribution.metadata["Name"]), str(distribution.version)
    except Exception:  # reported by `_read`
        return _folder(distribution), "?"


def _carries(distribution: Any) -> bool:
    """Say whether a distribution has our group, also where its entry points cannot be read."""
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except Exception:  # no UTF-8, or no file
        try:
            text = Path(_folder(distribution), "entry_points.txt").read_text(errors="replace")
        except OSError:
            return False
    return f"[{PROJECT}]" in (line.replace(" ", "") for line in text.splitlines())


def _read(distribution: Any) -> _Copy:
    """Read one folder; what is wrong with it is part of the value."""
    name, version = _stem(distribution)
    entry_points: tuple[importlib_metadata.EntryPoint, ...] = ()
    carries, problem = _carries(distribution), ""
    try:
        entry_points = tuple(distribution.entry_points.select(group=PROJECT))
        carries = bool(entry_points)
    except Exception as error:
        problem = f"its entry_points.txt cannot be read ({type(error).__name__}: {error})"
    try:
        metadata = distribution.metadata
        fields = {field: str(metadata.get(field) or "").strip() for field in ("Name", "Version")}
    except Exception as error:
        problem = problem or f"its metadata cannot be read ({type(error).__name__}: {error})"
    else:
        missing = [field for field in fields if not fields[field]]
        problem = problem or (f"its METADATA has no {missing[0]}" if missing else "")
        name, version = fields["Name"] or name, fields["Version"] or version
    return _Copy(_folder(distribution), name, version, entry_points, carries, problem)


def _choose(copies: list[_Copy]) -> _Copy:
    """Take the copy that Python would import: the first that can be read.

    Of several in one folder, whose order is that of the file system, it is the newest.
    """
    readable = [copy for copy in copies if not copy.problem]
    if not readable:
        return next((copy for copy in copies if copy.carries), copies[0])
    place = os.path.dirname(readable[0].folder)
    return max((c for c in readable if os.path.dirname(c.folder) == place), key=_age)


def _age(copy: _Copy) -> tuple[bool, Any, str]:
    try:
        return True, Version(copy.version), copy.folder
    except InvalidVersion:
        return False, copy.version, copy.folder


def _declared(copy: _Copy) -> Iterator[Declared]:
    """List the plugins of one copy."""
    where = f"{copy.folder}: {copy.problem}; install it anew, or remove the folder"
    problem = where if copy.problem else ""
    if copy.problem and copy.carries and not copy.entry_points:
        yield Declared(Plugin(copy.name, copy.name, copy.version, UNREADABLE), None, problem)
    for entry in dict.fromkeys(copy.entry_points):
        plugin = Plugin(entry.name or copy.name, copy.name, copy.version, entry.value)
        nameless = "" if entry.name else f"{copy.folder}: an entry point has no name"
        yield Declared(plugin, entry, problem or nameless)


def _others(chosen: _Copy, copies: Iterable[_Copy]) -> Iterator[PassedOver]:
    """Say of the other copies why they are passed over; of an equal one there is nothing to say."""
    for copy in copies:
        if copy is chosen or (copy.says == chosen.says and not copy.problem):
            continue
        taken = f"{chosen.name} {chosen.version} of {chosen.folder} is taken"
        if copy.problem:
            yield PassedOver(copy.folder, f"{copy.problem}; {taken}")
        elif copy.carries and not chosen.carries:
            why = f"{taken}, which declares no entry point in group {PROJECT!r}"
            yield PassedOver(copy.folder, f"it is not the first on sys.path: {why}", True)
        else:
            same = os.path.dirname(copy.folder) == os.path.dirname(chosen.folder)
            why = "a second copy in one folder" if same else "a second copy on sys.path"
            yield PassedOver(copy.folder, f"{why}: {taken}", same)


def _module(declared: Declared) -> str:
    return declared.plugin.module
