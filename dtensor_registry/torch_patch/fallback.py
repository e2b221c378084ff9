"""What happens to an op that nobody has a rule for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry.discovery import Fallback, is_disabled_for
from dtensor_registry.errors import FallbackRefusedError, RuleError
from dtensor_registry.resolution import is_left_to_torch
from dtensor_registry.settings import Settings
from dtensor_registry.torch_patch.layers import Entry
from dtensor_registry.torch_patch.table_patcher import has_rule
from dtensor_registry.torch_runtime.execute import Executor, is_mistold
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.move_prices import nbytes_of
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry.torch_runtime.source_lines import stacklevel


class FallbackWarning(UserWarning):
    """An op without a rule runs under a fallback, which moves data."""


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """The fallbacks of one layer, asked in order; called when torch found no rule.

    Attributes:
        fallbacks: in the order in which they are asked.
        settings: what is set under `fallback`, and `disabled`.
    """

    fallbacks: tuple[Fallback, ...]
    settings: Settings

    def __call__(self, op: OpOverload, specs: Sequence[DTensorSpec]) -> Entry | None:
        """Find a fallback for an op.

        Args:
            op: an op for which torch found no rule.
            specs: the tensors of the call.

        Returns:
            The op's entry, or None when this policy has nothing to say of the op.

        Raises:
            FallbackRefusedError: if every fallback refuses, or the mode is `error`.
            RuleError: if a fallback's own `refuses` raises.
        """
        name = str(op)
        mode = self.settings.fallback.mode
        if mode == "off" or not self._covers(name) or has_rule(op):
            return None
        if is_left_to_torch(name, self.settings):
            return None
        moved = [spec for spec in specs if not spec.is_replicated()]
        refused: list[tuple[str, str]] = []
        for fallback in self.fallbacks:
            reason = self._switched_off(name, fallback) or refusal(op, moved)
            reason = reason or _own_refusal(op, fallback)
            if reason is None and mode == "error":
                reason = f"fallback.mode is 'error'; it would move {_cost(moved)}"
            if reason is None:
                return self._accept(op, fallback, moved)
            refused.append((fallback.strategy.name, reason))
        raise FallbackRefusedError(name, refused)

    def _accept(self, op: OpOverload, fallback: Fallback, moved: Sequence[DTensorSpec]) -> Entry:
        if self.settings.fallback.mode == "warn":
            warnings.warn(
                f"{op} has no sharding strategy; fallback {fallback.strategy.name!r} of"
                f" {fallback.origin.distribution} runs it and moves {_cost(moved)}, in every"
                f" call like this one.\n"
                f"  Write a rule:  SingleDimStrategy('{op}', rule)\n"
                f"  or say nothing:  DTENSOR_REGISTRY_FALLBACK__MODE=silent",
                FallbackWarning,
                stacklevel=stacklevel(),
            )
        rule = InstalledRule(
            fallback.strategy.rule,
            fallback.origin,
            fallback=fallback.strategy.name,
            max_bytes=self.settings.fallback.max_bytes,
            max_rows=self.settings.max_rows,
        )
        info = _SingleDimStrategyInfo(rule)
        known = facts(op)
        # What the op writes to a gathered argument has to be written back.
        executes = known.beyond_torch or known.mutates or known.complex_in_key or is_mistold(op)
        if executes:
            return Entry(info, known.schema_info, Executor(rule, info, known.schema_info))
        return Entry(info, known.schema_info)

    def _covers(self, name: str) -> bool:
        chosen = self.settings.fallback
        return _matches(name, chosen.include) and not _matches(name, chosen.exclude)

    def _switched_off(self, name: str, fallback: Fallback) -> str | None:
        """Say that a fallback may not run an op, if the settings or the fallback say so."""
        own, origin = fallback.strategy.name, fallback.origin
        if is_disabled_for(self.settings, origin.plugin, origin.distribution, name):
            return "switched off for this op in 'disabled'"
        named = ("*",) if not fallback.strategy.named_only else ()
        if _matches(name, self.settings.fallback.ops.get(own, named)):
            return None
        return f"setting fallback.ops does not name this op under {own!r}"


def _own_refusal(op: OpOverload, fallback: Fallback) -> str | None:
    """Ask a fallback itself whether it refuses an op."""
    if fallback.strategy.refuses is None:
        return None
    try:
        return fallback.strategy.refuses(op)
    except Exception as error:
        problem = f"its refuses() raised {type(error).__name__}: {error}"
        origin = fallback.origin
        raise RuleError(str(op), origin.plugin, str(origin), problem) from error


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def refusal(op: OpOverload, moved: Sequence[DTensorSpec]) -> str | None:
    """Say why gathering the inputs cannot run an op right, or None.

    Args:
        op: the op.
        moved: the inputs that are not replicated.
    """
    known = facts(op)
    if known.random:
        return "it draws random numbers, which would differ between ranks that must agree"
    if known.view and moved:
        placements = ", ".join(str(spec.placements) for spec in moved)
        return (
            f"its output is a view of an input, which is not replicated ({placements});"
            " a moved copy would not share memory. Redistribute to Replicate first"
        )
    return None


def _cost(moved: Sequence[DTensorSpec]) -> str:
    """Say how much has to be gathered for one call."""
    size = sum(nbytes_of(spec) for spec in moved)
    return f"{len(moved)} input(s), {size} bytes once gathered"
