"""Where the checks of a test session run: one process, one check of each rule, kept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from dtensor_registry.discovery import PluginWarning
from dtensor_registry.settings import Settings

_BENCHES = pytest.StashKey[dict[str, "Bench"]]()

Key = tuple[str, str]


class Bench:
    """The rules under some settings, and what is known of them.

    Attributes:
        targets: what there is to check, by plugin and op.
    """

    def __init__(self, settings: Settings) -> None:
        # Here, since importing it imports torch, which a run of other tests should not pay for.
        from dtensor_registry_kit.verification.targets import find_targets

        self._settings = settings
        with warnings.catch_warnings():
            # That a distribution is not installed is said by whoever asks for its rules.
            warnings.simplefilter("ignore", PluginWarning)
            self.targets = {target.key: target for target in find_targets(settings)}
        self._known: dict[tuple[Key, int], Any] = {}
        self._isolated: Any = None

    def verify(
        self,
        key: Key,
        *,
        calls: int,
        seconds: float,
        given: Sequence[Any] | None,
        isolated: bool,
    ) -> Any:
        """Check one rule, once in a session."""
        if (key, calls) not in self._known:
            self._known[key, calls] = self._verify(key, calls, seconds, given, isolated)
        return self._known[key, calls]

    def close(self) -> None:
        """Stop the process."""
        if self._isolated is not None:
            self._isolated.close()

    def _verify(
        self, key: Key, calls: int, seconds: float, given: Sequence[Any] | None, isolated: bool
    ) -> Any:
        from dtensor_registry_kit.isolation import Isolated
        from dtensor_registry_kit.samples.sample import sample_of
        from dtensor_registry_kit.verification.targets import entries_beneath
        from dtensor_registry_kit.verification.verify import (
            Options,
            Task,
            lost,
            more_careful,
            verify_target,
            verify_task,
        )

        options = Options(samples=calls, seconds=seconds)
        samples = None if given is None else tuple(map(sample_of, given))
        if not isolated:
            beneath = entries_beneath(self._settings)
            return verify_target(self.targets[key], options, samples, beneath=beneath)
        if self._isolated is None:
            self._isolated = Isolated(verify_task, seconds)
        outcome = self._isolated.run(Task(self._settings, (), key, options, samples))
        while (again := more_careful(outcome)) is not None:
            outcome = self._isolated.run(again)
        if outcome.result is None:
            return lost(self.targets[key], outcome)
        return outcome.result


def bench_of(config: pytest.Config, settings: Settings) -> Bench:
    """Find or make the bench of a test session for some settings."""
    if _BENCHES not in config.stash:
        config.stash[_BENCHES] = {}
    benches = config.stash[_BENCHES]
    name = settings.model_dump_json()
    if name not in benches:
        benches[name] = Bench(settings)
        config.add_cleanup(benches[name].close)
    return benches[name]
