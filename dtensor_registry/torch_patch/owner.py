"""Who decides an op in this process: the one place that says it."""

from __future__ import annotations

from torch._ops import OpOverload

from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.layers import Entry
from dtensor_registry.torch_patch.program_rules import Registered
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER, has_rule
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.decision import HANDLER, Owner, owner_of_rule
from dtensor_registry.torch_runtime.installed_rule import InstalledRule


def owner_of(op: OpOverload, entry: Entry | None, program: Registered | None) -> Owner:
    """Say who decides an op.

    Args:
        op: the overload.
        entry: what a layer in force has for it, or None.
        program: what the program registered, if that made the layer.
    """
    if entry is None:
        return _torchs(op)
    if program is not None:
        return Owner(program.origin.plugin, "plugin", "rule", program.origin)
    rule = getattr(entry.rule, "func", entry.rule)
    if isinstance(rule, (CorrectedRule, AmendedTorch)):
        return Owner(rule.origin.plugin, "plugin", _torchs(op).decider, rule.origin)
    if not isinstance(rule, InstalledRule):
        return Owner("context", "plugin", "rule")
    return owner_of_rule(rule)


def _torchs(op: OpOverload) -> Owner:
    """Say what torch runs an op by."""
    if LEDGER.original(HANDLERS, op) is not None:
        return HANDLER
    if has_rule(op):
        return Owner("torch", "torch", "torch")
    return Owner("decomposition", "decomposition", "decomposition")
