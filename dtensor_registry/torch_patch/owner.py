"""Who decides an op in this process."""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch._ops import OpOverload

from dtensor_registry.discovery import PROGRAM
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER, has_rule
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.installed_rule import InstalledRule

Kind: TypeAlias = Literal["none", "fallback", "plugin", "decomposition", "torch", "program"]
"""Who decided: nobody, a fallback, a plugin (or a context, or this process), torch from what the
op is made of, torch's own rule or handler, or the program that moved a tensor by itself."""

NOBODY = "nobody"


def owner(op: OpOverload) -> str:
    """Say who decides an op: a plugin, `torch`, `fallback <name>`, `decomposition`, `handler`."""
    return owner_and_kind(op)[0]


def owner_and_kind(op: OpOverload) -> tuple[str, Kind]:
    """Say who decides an op, and what kind of party that is."""
    found = LOAN.find(op)
    if found is None and LEDGER.original(HANDLERS, op) is not None:
        return "handler", "torch"
    if found is not None:
        if found[0].program is not None:
            return PROGRAM, "plugin"
        rule = getattr(found[1].rule, "func", None)
        rule = found[1].rule if isinstance(found[1].rule, AmendedTorch) else rule
        if isinstance(rule, (CorrectedRule, AmendedTorch)):
            return rule.origin.plugin, "plugin"
        if not isinstance(rule, InstalledRule):
            return "context", "plugin"
        if rule.fallback is not None:
            return f"fallback {rule.fallback}", "fallback"
        return rule.origin.plugin, "plugin"
    return ("torch", "torch") if has_rule(op) else ("decomposition", "decomposition")
