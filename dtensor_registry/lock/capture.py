"""Take down what an environment resolves to, and hold it against a lock file."""

from __future__ import annotations

from typing import Any

from dtensor_registry.discovery import Contribution, Discovery, Fallback, Origin, discover
from dtensor_registry.errors import LockFileError, LockMismatchError
from dtensor_registry.fingerprint import Hashes, of_installation
from dtensor_registry.lock import Lock, LockedOp, differences, read_lock
from dtensor_registry.lock.values import PENDING, TORCH, UNASKED
from dtensor_registry.resolution import Resolution, Verdict
from dtensor_registry.settings import Settings, read_settings
from dtensor_registry.torch_patch.winners import Winners
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.representative import typical_rows

GROUND = ("torch", "host", "python", "setting fallback", "setting torch_rules")
"""Parts of a fingerprint that no op's line speaks of; plugins are another."""


def lock_of(settings: Settings, discovery: Discovery, resolution: Resolution) -> Lock:
    """Take down what was resolved.

    Args:
        settings: what decided.
        discovery: what plugins contributed.
        resolution: who won each op.
    """
    parts = of_installation(settings, discovery, resolution).parts
    ground = {n: value for n, value in parts if n in GROUND or n.startswith("plugin ")}
    hashes = Hashes()
    for fallback in resolution.fallbacks:
        owner = f"{fallback.origin.plugin} ({_owner(fallback.origin)})"
        ground[f"fallback {fallback.strategy.name}"] = owner + _hashed(fallback, hashes)
    ops = (_locked(verdict, hashes) for verdict in resolution.verdicts.values())
    return Lock(ground, tuple(ops))


def current_lock(settings: Settings | None = None) -> Lock:
    """Take down what this environment resolves to; nothing is installed.

    Raises:
        SettingsError: for a setting that is unknown or unusable.
        BrokenPluginsError: if a plugin cannot be used.
        ConflictingStrategiesError: if two plugins of equal rank claim an op.
    """
    chosen = settings if settings is not None else read_settings()
    discovery = discover(chosen)
    return lock_of(chosen, discovery, Winners(discovery, chosen).resolution)


def check_lock(settings: Settings, discovery: Discovery, resolution: Resolution) -> None:
    """Hold what was resolved against the lock file that the settings name.

    Raises:
        LockFileError: if the file cannot be read, or is no lock.
        LockMismatchError: if they differ.
    """
    if settings.lock is None:
        return
    try:
        locked = read_lock(settings.lock)
    except LockFileError as error:
        told = f"{error.problem}; setting 'lock' names it, so nothing was put in force"
        raise LockFileError(error.file, told) from error
    found = differences(locked, lock_of(settings, discovery, resolution))
    if found:
        raise LockMismatchError(settings.lock, list(map(str, found)))


def _locked(verdict: Verdict, hashes: Hashes) -> LockedOp:
    winner = verdict.winner
    in_torch = verdict.torch_table is not None
    if winner is None:
        return LockedOp(verdict.op, TORCH, "", in_torch, "", ())
    origin = winner.origin
    rule = winner.strategy.rule
    rows: tuple[str, ...] | None = (PENDING,)
    if verdict.overload is not None:
        rows = typical_rows(verdict.overload, InstalledRule(rule, origin))
    return LockedOp(
        verdict.op,
        origin.plugin,
        _owner(origin),
        in_torch,
        _rule_text(rule) + _hashed(winner, hashes),
        (UNASKED,) if rows is None else rows,
    )


def _owner(origin: Origin) -> str:
    return f"{origin.distribution} {origin.version}"


def _rule_text(rule: Any) -> str:
    """Write a rule: a template prints itself, a function has its name."""
    name = getattr(rule, "__qualname__", None)
    return str(rule) if name is None else f"{rule.__module__}.{name}"


def _hashed(given: Contribution | Fallback, hashes: Hashes) -> str:
    """Write hashes of what text and rows do not show: traits of a strategy, what a rule calls."""
    return " #{}, file {}".format(*hashes.of(given.strategy, given.origin))
