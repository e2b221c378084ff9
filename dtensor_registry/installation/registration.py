"""Strategies of this process alone, above every plugin."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from dtensor_registry.discovery import LOCAL, Contribution, Discovery, Origin, PluginWarning
from dtensor_registry.fingerprint import of_rules, traits
from dtensor_registry.rules import Rule, SingleDimStrategy
from dtensor_registry.rules.strategy import rule_source
from dtensor_registry.settings import read_settings
from dtensor_registry.torch_patch.layers import Layer
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.unknown_ops import unknown_ops
from dtensor_registry.torch_patch.winners import Winners


class Registration:
    """A rule in force in this process; call it as the rule it wraps, `undo()` it, or use `with`."""

    def __init__(self, strategy: SingleDimStrategy) -> None:
        self.strategy = strategy
        origin = Origin(LOCAL, "this process", "", rule_source(strategy))
        claims = [Contribution(name, strategy, origin) for name in strategy.names]
        winners = Winners(Discovery((), (), ()), read_settings(), claims)
        told = of_rules(dict.fromkeys(strategy.names, traits(strategy)), "this process")
        self._layer = Layer(
            f"a rule for {strategy.op}",
            height=1,
            entries=winners.entries(),
            pending=winners.late,
            parts=told.parts,
        )
        for note in unknown_ops(winners.resolution):
            warnings.warn(note, PluginWarning, stacklevel=3)  # who calls `register`
        LOAN.add(self._layer)

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the rule itself, as if it had not been registered."""
        return self.strategy.rule(op, args, kwargs)

    def undo(self) -> None:
        """Take the rule out of force; doing so twice does no harm."""
        LOAN.remove(self._layer)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def register_single_dim_strategy(op: Any, **options: Any) -> Callable[[Rule], Registration]:
    """Put a rule in force in this process only, above every plugin.

    Use it as a decorator, or call it on a template. The latest registration of an op wins.

    Args:
        op: as for `SingleDimStrategy`.
        options: keyword arguments of `SingleDimStrategy`.

    Returns:
        A function that takes the rule and returns its `Registration`.
    """

    def register(rule: Rule) -> Registration:
        return Registration(SingleDimStrategy(op, rule, **options))

    return register
