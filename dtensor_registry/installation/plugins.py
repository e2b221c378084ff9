"""`install()`: discover, resolve, and put the outcome on loan in torch's tables."""

from __future__ import annotations

import hashlib
import json
from types import TracebackType
from typing import Any

import torch

from dtensor_registry._torch.fallback import FallbackPolicy
from dtensor_registry._torch.loan import LOAN, Layer
from dtensor_registry._torch.winners import Winners
from dtensor_registry.discovery import Discovery, discover
from dtensor_registry.resolution import Resolution, check_pins_are_used
from dtensor_registry.settings import Settings, read_settings


class Installation:
    """Strategies in force, until `uninstall()` or the end of a `with` block.

    Attributes:
        settings: what decided.
        discovery: what plugins contributed.
        resolution: who won each op, and why.
    """

    def __init__(self, settings: Settings, discovery: Discovery) -> None:
        winners = Winners(discovery, settings)
        check_pins_are_used(winners.resolution, settings)
        self.settings = settings
        self.discovery = discovery
        self.resolution: Resolution = winners.resolution
        self._layer = Layer(
            "an installation",
            height=0,
            entries=winners.entries(),
            adopts=settings.torch_rules,
            pending=winners.late,
            missing=FallbackPolicy(self.resolution.fallbacks, settings),
            before_decomposition=settings.fallback.before_decomposition,
        )
        self._holders = 0

    @property
    def active(self) -> bool:
        """Whether its strategies are in force."""
        return self._layer in LOAN.layers

    @property
    def fingerprint(self) -> str:
        """Hash of what decides a sharding: torch, settings, and the owner of every op.

        Two processes with equal fingerprints resolved alike. What rules compute inside is
        not part of it beyond the version of the distribution that ships them.
        """
        owners = {
            op: None
            if v.winner is None
            else (v.winner.origin.distribution, v.winner.origin.version)
            for op, v in self.resolution.verdicts.items()
        }
        decided = [torch.__version__, self.settings.model_dump(mode="json"), owners]
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()

    def uninstall(self) -> None:
        """Give torch's tables back exactly as they were, once the last holder lets go.

        Raises:
            InstallError: inside a dispatch of this thread.
            OverwrittenEntryError: if other code wrote over entries meanwhile; those are left
                as found, all others are restored.
        """
        with LOAN.lock:
            if self._holders > 1:
                self._holders -= 1
                return
            LOAN.remove(self._layer)
            self._holders = 0

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.uninstall()

    def __str__(self) -> str:
        state = "active" if self.active else "not active"
        return f"installation ({state}) of {len(self._layer.entries)} ops\n{self.discovery}"

    def hold(self) -> None:
        """Put the strategies in force, or count one more who wants them to stay so.

        Raises:
            InstallError: inside a dispatch of this thread.
        """
        with LOAN.lock:
            if not self.active:
                LOAN.add(self._layer)
                self._holders = 0  # those who held it before it was taken out do so no more
            self._holders += 1


_installations: dict[str, Installation] = {}
"""What this process has installed, by settings: to install the same twice is to hold it twice."""


def install(settings: Settings | None = None, **overrides: Any) -> Installation:
    """Discover plugins, resolve who wins each op, and put the winners' rules in force.

    Installing again with the same settings holds the same installation; each holder lets go
    with `uninstall()`. Other settings go on top until they are uninstalled.

    Args:
        settings: ready-made settings; None reads them from the environment and files.
        overrides: single settings that win over environment and files, for example
            `order=["acme", "*", "torch"]`.

    Raises:
        SettingsError: for a setting that is unknown or unusable.
        BrokenPluginsError: if a plugin cannot be used; nothing is installed.
        ConflictingStrategiesError: if two plugins of equal rank claim an op.
        RequiredPluginError: if a required distribution is missing.
        UnsupportedTorchError: if this torch lacks private names that the host needs.
        InstallError: inside a dispatch, or for a rule that torch would pass over.
    """
    chosen = settings if settings is not None else read_settings(**overrides)
    key = chosen.model_dump_json()
    with LOAN.lock:
        held = _installations.get(key)
        if held is None or not held.active:
            held = Installation(chosen, discover(chosen))
        held.hold()
        _installations[key] = held
        return held
