"""What decides a sharding in this process, as named parts that ranks and caches can compare."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import importlib_metadata
import torch

from dtensor_registry.discovery import Discovery, Fallback, Origin
from dtensor_registry.resolution import Resolution
from dtensor_registry.rules import FallbackStrategy, SingleDimStrategy
from dtensor_registry.settings import Settings

HOST = "dtensor-registry"

APART = ("allowed", "check_ranks", "disabled", "lock", "required")
"""Settings whose effect is seen in the plugins that take part, or that decide no sharding. All
others count; of `disabled` what it says of single ops does."""

_NOT_DECIDING = ("name", "op", "rule", "samples", "shows")
"""Fields of a strategy that are part of its name, or of nothing that decides."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Named parts; two processes with equal parts shard every op alike.

    Attributes:
        parts: (name, value), for example ("plugin acme", "acme-rules 1.2 (acme)").

    >>> Fingerprint((("torch", "2.13.0"),)).digest[:8]
    'b3d2d09f'
    """

    parts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all parts, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.parts).encode()).hexdigest()

    def __getitem__(self, name: str) -> str:
        return dict(self.parts)[name]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.parts)


def of_installation(
    settings: Settings, discovery: Discovery, resolution: Resolution
) -> Fingerprint:
    """Take down what an installation decides by.

    Args:
        settings: all but those in `APART` count, and what `disabled` says of single ops.
        discovery: plugins that take part or failed count.
        resolution: the owner of each op, and the rule that won.
    """
    hashes = Hashes()
    parts = [
        *_ground(),
        *_settings(settings),
        *(
            (f"plugin {p.name}", f"{p.distribution} {p.version} ({p.module}) {p.state}")
            for p in discovery.plugins
            if p.state in ("active", "failed")
        ),
        *_fallbacks(resolution.fallbacks, hashes),
        *(
            (
                f"op {op}",
                "torch"
                if verdict.winner is None
                else hashes.told(verdict.winner.strategy, verdict.winner.origin),
            )
            for op, verdict in resolution.verdicts.items()
        ),
    ]
    return Fingerprint(tuple(parts))


def of_rules(rules: Mapping[str, Any], owner: str) -> Fingerprint:
    """Take down rules of this process alone.

    Args:
        rules: op -> its rule or strategy function.
        owner: what put them in force, for people.
    """
    told = [(f"op {op}", f"{owner}, {_local(rule)}") for op, rule in rules.items()]
    return Fingerprint((*_ground(), *told))


def _local(rule: Any) -> str:
    """Hash a rule of this process with what it reads of its module, and name what cannot be."""
    read: dict[str, Any] = {}
    for function in _functions_in(rule, frozenset()):
        read |= {
            name: function.__globals__[name]
            for name in sorted(_names_in(function.__code__))
            if name in function.__globals__
        }
    files = sorted({f.__code__.co_filename for f in _functions_in(rule, frozenset())})
    data = {name: value for name, value in read.items() if _can_be_compared(value)}
    passed_over = [
        name
        for name, value in read.items()
        if name not in data
        and not isinstance(value, (type, types.ModuleType))
        and not callable(value)
    ]
    told = [f"rule {digest_of((rule, data))}", *(f"file {_file_digest(file)}" for file in files)]
    if passed_over:
        told.append(f"not compared: {', '.join(passed_over)}")
    return ", ".join(told)


def _functions_in(value: Any, above: frozenset[int]) -> Iterator[types.FunctionType]:
    """List the functions that a rule is made of, as far as they are its own."""
    if id(value) in above:
        return
    above = above | {id(value)}
    if isinstance(value, types.FunctionType):
        if value.__module__.partition(".")[0] not in ("dtensor_registry", "torch"):
            yield value
            for cell in filter(_is_filled, value.__closure__ or ()):
                yield from _functions_in(cell.cell_contents, above)
            for name in _names_in(value.__code__):
                found = value.__globals__.get(name)
                if isinstance(found, types.FunctionType):
                    yield from _functions_in(found, above)
    elif isinstance(value, types.MethodType):
        yield from _functions_in(value.__func__, above)
    elif isinstance(value, functools.partial):
        yield from _functions_in(value.func, above)
    elif isinstance(value, (tuple, list)):
        for item in _items(value):
            yield from _functions_in(item, above)
    elif isinstance(inspect.getattr_static(type(value), "__call__", None), types.FunctionType):
        yield from _functions_in(type(value).__call__, above)


def _names_in(code: types.CodeType) -> set[str]:
    """List the names that code, and code inside it, may look up in its module."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _items(value: Any) -> Iterator[Any]:
    """Go through a container by Python's own code: that of a subclass may have no end."""
    kind = next(kind for kind in (tuple, list, set, frozenset) if isinstance(value, kind))
    items: Iterator[Any] = kind.__iter__(value)
    return items


def _can_be_compared(value: Any) -> bool:
    """Say whether a value is data; one that contains itself, or lies too deep, is none."""
    try:
        return _is_data(value)
    except RecursionError:
        return False


def _is_data(value: Any) -> bool:
    """Say whether a value is made of numbers, text and containers, as other processes have them."""
    if isinstance(value, dict):
        return all(_is_data(part) for pair in dict.items(value) for part in pair)
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_is_data, _items(value)))
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def of_fallbacks(settings: Settings, fallbacks: Iterable[Fallback]) -> Fingerprint:
    """Take down fallbacks that a context puts in force."""
    return Fingerprint((*_ground(), *_settings(settings), *_fallbacks(fallbacks, Hashes())))


MAX_PARTS = 100_000
"""Parts of a rule that are hashed; data beyond them is not compared between ranks."""


def digest_of(rule: Any) -> str:
    """Hash what a rule is: its code with all that it closes over, or a template's fields.

    The same in every process with the same Python, wherever the code is installed.

    >>> def rows(op, args, kwargs): return []
    >>> digest_of(rows) == digest_of(lambda op, args, kwargs: [1])
    False
    """
    return _short("\n".join(islice(_describe(rule, frozenset()), MAX_PARTS)))


def _ground() -> Iterator[tuple[str, str]]:
    yield "torch", torch.__version__
    yield "host", _host_version()
    # The same source has other bytecode in another Python, so name it first.
    yield "python", ".".join(map(str, sys.version_info[:2]))


def _settings(settings: Settings) -> Iterator[tuple[str, str]]:
    values = settings.model_dump(mode="json", exclude=set(APART))
    if values["fallback"]["mode"] == "silent":
        values["fallback"]["mode"] = "warn"  # the same, but for a warning
    values["disabled"] = sorted(entry for entry in settings.disabled if ":" in entry)
    for name in sorted(values):
        yield f"setting {name}", json.dumps(values[name], sort_keys=True)


@functools.cache
def _host_version() -> str:
    try:
        return str(importlib_metadata.version(HOST))
    except importlib_metadata.PackageNotFoundError:
        return "(a source tree)"


class Hashes:
    """Hashes of what strategies decide by; many ops share one rule, and many rules one file."""

    def __init__(self) -> None:
        self._rules: dict[int, str] = {}

    def of(self, strategy: SingleDimStrategy | FallbackStrategy, origin: Origin) -> tuple[str, str]:
        """Hash a rule with all else of its strategy that decides, and the file that it is in."""
        rule, others = traits(strategy)
        digest = self._rules.get(id(rule))
        if digest is None:
            digest = self._rules[id(rule)] = digest_of(rule)
        return digest_of((digest, others)), _file_digest(origin.source.file)

    def told(self, strategy: SingleDimStrategy | FallbackStrategy, origin: Origin) -> str:
        """Name who contributes a strategy, and hash it."""
        rule, file = self.of(strategy, origin)
        owner = f"{origin.distribution} {origin.version} ({origin.plugin})"
        return f"{owner}, rule {rule}, file {file}"


def traits(strategy: SingleDimStrategy | FallbackStrategy) -> tuple[Any, tuple[Any, ...]]:
    """Give a strategy's rule, and what else of it decides a sharding."""
    others = tuple(
        (field.name, getattr(strategy, field.name))
        for field in dataclasses.fields(strategy)
        if field.compare and field.name not in _NOT_DECIDING
    )
    return strategy.rule, others


def _fallbacks(fallbacks: Iterable[Fallback], hashes: Hashes) -> Iterator[tuple[str, str]]:
    for fallback in fallbacks:
        yield f"fallback {fallback.strategy.name}", hashes.told(fallback.strategy, fallback.origin)


@functools.cache
def _file_digest(file: str) -> str:
    try:
        with open(file, "rb") as source:
            return hashlib.sha256(source.read()).hexdigest()[:12]
    except OSError:
        return "(none)"  # typed in, or from an archive


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _describe(value: Any, above: frozenset[int]) -> Iterator[str]:
    """Describe a value without anything that differs between processes: addresses, paths, hashes.

    Args:
        value: a rule, or what it is made of.
        above: ids of the values that hold this one, so that a circle ends.
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, type(...))):
        yield repr(value)
        return
    if id(value) in above:
        yield "(circle)"
        return
    above = above | {id(value)}
    yield type(value).__qualname__
    if isinstance(value, types.CodeType):
        yield value.co_code.hex()
        yield repr((value.co_names, value.co_varnames, value.co_freevars, value.co_flags))
        yield from _describe(value.co_consts, above)
    elif isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        made_of = (value.__code__, value.__defaults__, value.__kwdefaults__, cells)
        yield from _describe(made_of, above)
    elif isinstance(value, types.MethodType):
        yield from _describe((value.__func__, value.__self__), above)
    elif isinstance(value, functools.partial):
        yield from _describe((value.func, value.args, value.keywords), above)
    elif isinstance(value, (tuple, list)):
        for item in _items(value):
            yield from _describe(item, above)
    elif isinstance(value, (set, frozenset)):
        yield from sorted("\n".join(_describe(item, above)) for item in _items(value))
    elif isinstance(value, Mapping):
        yield from sorted("\n".join(_describe(pair, above)) for pair in value.items())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.compare:
                yield field.name
                yield from _describe(getattr(value, field.name), above)
    elif isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        yield str(getattr(value, "__module__", "")) + value.__name__
    else:
        yield from _describe_object(value, above)


def _describe_object(value: Any, above: frozenset[int]) -> Iterator[str]:
    call = inspect.getattr_static(type(value), "__call__", None)
    if isinstance(call, types.FunctionType) and not type(value).__module__.startswith("torch"):
        yield from _describe((call, vars(value) if hasattr(value, "__dict__") else ()), above)
    else:
        try:
            shown = repr(value)
        except Exception:  # code of the rule's author; the type is all that is known
            return
        if " at 0x" not in shown:
            yield shown


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
