"""Contributions that won, as entries for a layer: those of now, and those of ops to come."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from torch._ops import OpOverload

from dtensor_registry.discovery import LOCAL, Contribution, Discovery, PluginWarning, is_required
from dtensor_registry.errors import MisfitError
from dtensor_registry.resolution import Resolution, resolve
from dtensor_registry.settings import Settings
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_patch.entries import single_dim_entry
from dtensor_registry.torch_patch.layers import Entry
from dtensor_registry.torch_patch.unknown_ops import NAMESPACES
from dtensor_registry.torch_patch.variants import base_of
from dtensor_registry.torch_runtime.ops import makers


class Winners:
    """Who wins what, of everything that was contributed and fits.

    A rule that does not fit its op is left out, and the next claimant wins. Where it is an
    error nevertheless says `entries()`.

    Attributes:
        resolution: the outcome when this was made.
    """

    def __init__(
        self, discovery: Discovery, settings: Settings, local: Sequence[Contribution] = ()
    ) -> None:
        self._discovery = discovery
        self._settings = settings
        self._local = tuple(local)
        self._names = {claim.op for claim in (*discovery.contributions, *local)}
        self._lost: set[OpOverload] = set()
        self._misfits: dict[tuple[str, str], MisfitError] = {}
        known = -1
        while len(self._misfits) > known:  # the next claimant may not fit either
            known = len(self._misfits)
            self.resolution = self._resolve(discovery, self._local)
            self._entries = self._make_entries()

    def _resolve(self, discovery: Discovery, local: Sequence[Contribution]) -> Resolution:
        reasons = {
            key: f"left out: {error.problem.splitlines()[0]}"
            for key, error in self._misfits.items()
        }
        return resolve(discovery, self._settings, TorchCatalog(), local, reasons)

    def _make_entries(self) -> dict[OpOverload, Entry]:
        """Make the entries of all ops that exist, and take down which rules do not fit."""
        entries: dict[OpOverload, Entry] = {}
        for verdict in self.resolution.verdicts.values():
            op = verdict.overload
            if op is None or verdict.winner is None:
                continue
            try:
                entries[op] = single_dim_entry(
                    op, verdict.winner, self.resolution, self._settings.max_rows
                )
            except MisfitError as error:
                self._misfits[error.op, error.plugin] = error
        return entries

    def entries(self) -> dict[OpOverload, Entry]:
        """Give the entries of all ops that exist.

        Raises:
            MisfitError: for a rule that does not fit an op of its author's own, that the
                process registered itself, that a pin names, or whose distribution is required.
        """
        for error in self._misfits.values():
            if self._is_strict(error):
                raise error
        return self._entries

    def left_out(self) -> tuple[str, ...]:
        """Say which rules are left out since they do not fit their op: a message for each rule."""
        by_rule: dict[str, list[MisfitError]] = {}
        for error in self._misfits.values():
            if not self._is_strict(error):
                by_rule.setdefault(error.owner, []).append(error)
        return tuple(_left_out(errors, self.resolution) for errors in by_rule.values())

    def _is_strict(self, error: MisfitError) -> bool:
        """Say whether a rule has to fit."""
        namespace, packet, _ = error.op.split(".")
        pins = self._settings.pins
        pinned = pins.get(error.op) or pins.get(f"{namespace}.{packet}")
        if error.plugin in (LOCAL, pinned):
            return True
        active = (p for p in self._discovery.plugins if p.state == "active")
        plugin = next((p for p in active if p.name == error.plugin), None)
        if plugin is None:
            return False
        package = plugin.module.partition(":")[0].partition(".")[0]
        own = namespace not in NAMESPACES and package in makers(namespace)
        return own or is_required(self._settings, plugin.distribution)

    def late(self, op: OpOverload) -> Entry | None:
        """Make the entry of an op that came into being since, if a contribution wins it.

        Raises:
            ConflictingStrategiesError: if two plugins of equal rank claim it.
            MisfitError: as `entries()`; of others a warning says that they are left out.
        """
        if op in self._lost:
            return None
        base = base_of(op)
        forms = (op,) if base is None else (op, base)
        names = {n for form in forms for n in (str(form), str(form.overloadpacket))} & self._names

        def of_op(claims: Sequence[Contribution]) -> tuple[Contribution, ...]:
            return tuple(claim for claim in claims if claim.op in names)

        discovery = replace(self._discovery, contributions=of_op(self._discovery.contributions))
        local = of_op(self._local)
        while True:
            now = self._resolve(discovery, local)
            verdict = now.verdicts.get(str(op))
            if verdict is None or verdict.winner is None:
                self._lost.add(op)
                return None
            try:
                return single_dim_entry(
                    op, verdict.winner, self.resolution, self._settings.max_rows
                )
            except MisfitError as error:
                if self._is_strict(error):
                    raise
                self._misfits[str(op), verdict.winner.origin.plugin] = error
                now = self._resolve(discovery, local)
                warnings.warn(_left_out([error], now), PluginWarning, stacklevel=2)


def _left_out(errors: Sequence[MisfitError], resolution: Resolution) -> str:
    """Say what does not fit, for the first of the ops of one rule, and name the others."""
    first, *others = errors
    verdict = resolution.verdicts.get(first.op)
    winner = None if verdict is None else verdict.winner
    answers = "what torch itself does stays" if winner is None else f"{winner.origin} wins the op"
    also = f"\n  Nor does it fit {', '.join(error.op for error in others)}." if others else ""
    return f"{first}\n  It is left out: {answers}.{also}"
