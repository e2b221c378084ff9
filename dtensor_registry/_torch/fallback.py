"""What happens to an op that nobody has a rule for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry._torch.execute import Executor
from dtensor_registry._torch.loan import Entry
from dtensor_registry._torch.rule import InstalledRule
from dtensor_registry._torch.schema import facts
from dtensor_registry._torch.tables import has_rule
from dtensor_registry.discovery import Fallback
from dtensor_registry.errors import FallbackRefusedError
from dtensor_registry.settings import FallbackSettings


class FallbackWarning(UserWarning):
    """An op without a rule runs under a fallback, which moves data."""


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """The fallbacks of one layer, asked in order; called when torch found no rule.

    Attributes:
        fallbacks: in the order in which they are asked.
        settings: `mode`, `include` and `exclude`.
    """

    fallbacks: tuple[Fallback, ...]
    settings: FallbackSettings

    def __call__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Entry | None:
        """Find a fallback for an op.

        Returns:
            The op's entry, or None when this policy has nothing to say of the op.

        Raises:
            FallbackRefusedError: if every fallback refuses, or the mode is `error`.
        """
        name = str(op)
        if self.settings.mode == "off" or not self._covers(name) or has_rule(op):
            return None
        moved = [tensor.placements for tensor in _moved(args, kwargs)]
        refused: list[tuple[str, str]] = []
        for fallback in self.fallbacks:
            reason = self._unnamed(name, fallback) or refusal(op, moved)
            if reason is None and fallback.strategy.refuses is not None:
                reason = fallback.strategy.refuses(op)
            if reason is None and self.settings.mode == "error":
                reason = f"fallback.mode is 'error'; it would move {_cost(args, kwargs)}"
            if reason is None:
                return self._accept(op, fallback, args, kwargs)
            refused.append((fallback.strategy.name, reason))
        if not refused:
            refused.append(("(none)", "no fallback plugin: pip install dtensor-registry-fallback"))
        raise FallbackRefusedError(name, refused)

    def _accept(
        self, op: OpOverload, fallback: Fallback, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Entry:
        if self.settings.mode == "warn":
            warnings.warn(
                f"{op} has no sharding strategy; fallback {fallback.strategy.name!r} of"
                f" {fallback.origin.distribution} runs it and moves {_cost(args, kwargs)}, in every"
                f" call like this one.\n"
                f"  Write a rule:  SingleDimStrategy('{op}', rule)\n"
                f"  or say nothing:  DTENSOR_REGISTRY_FALLBACK__MODE=silent",
                FallbackWarning,
                stacklevel=2,
            )
        rule = InstalledRule(
            fallback.strategy.rule,
            fallback.origin,
            fallback=fallback.strategy.name,
            max_bytes=self.settings.max_bytes,
        )
        info = _SingleDimStrategyInfo(rule)
        known = facts(op)
        # What the op writes to a gathered argument has to be written back.
        if known.beyond_torch or known.mutates:
            return Entry(info, known.schema_info, Executor(rule, info, known.schema_info))
        return Entry(info, known.schema_info)

    def _covers(self, name: str) -> bool:
        return _matches(name, self.settings.include) and not _matches(name, self.settings.exclude)

    def _unnamed(self, name: str, fallback: Fallback) -> str | None:
        """Say that a fallback may not run an op, if the settings or the fallback say so."""
        own = fallback.strategy.name
        globs = self.settings.ops.get(own, () if fallback.strategy.named_only else ("*",))
        if _matches(name, globs):
            return None
        return f"setting fallback.ops does not name this op under {own!r}"


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def refusal(op: OpOverload, moved: Sequence[tuple[Any, ...]]) -> str | None:
    """Say why gathering the inputs cannot run an op right, or None.

    Args:
        op: the op.
        moved: placements of the inputs that are not replicated.
    """
    known = facts(op)
    if known.random:
        return "it draws random numbers, which would differ between ranks that must agree"
    if known.view and moved:
        return (
            f"its output is a view of an input, which is not replicated"
            f" ({', '.join(map(str, moved))}); a moved copy would not share memory."
            " Redistribute to Replicate first"
        )
    return None


def _cost(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Say how much has to be gathered for one call."""
    moved = _moved(args, kwargs)
    size = sum(tensor.numel() * tensor.element_size() for tensor in moved)
    return f"{len(moved)} input(s), {size} bytes once gathered"


def _moved(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[DTensor]:
    """List the inputs that gathering would move."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found += value if isinstance(value, (list, tuple)) else (value,)
    return [
        value
        for value in found
        if isinstance(value, DTensor) and not all(p.is_replicate() for p in value.placements)
    ]
