"""Ops by name, and what torch itself has for them."""

from __future__ import annotations

from typing import TypeAlias

from torch._ops import OpOverload

from dtensor_registry.torch_patch.program_rules import is_programs
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER
from dtensor_registry.torch_patch.variants import variants_of
from dtensor_registry.torch_runtime.compat import RULE_TABLES
from dtensor_registry.torch_runtime.ops import find_overloads

Op: TypeAlias = OpOverload
"""An operator overload."""

SINGLE_DIM = "op_single_dim_strategy_funcs"


class TorchCatalog:
    """Answers for resolution: which overloads exist, and which torch runs by its own rule."""

    def overloads(self, name: str) -> tuple[Op, ...]:
        """List the overloads that `aten.mm` or `aten.mm.default` stands for, if any exist yet."""
        return find_overloads(name)

    def variants(self, op: Op) -> tuple[Op, ...]:
        """List the other forms of an overload: in place, `out=`, over lists."""
        return variants_of(op)

    def torch_table(self, op: Op) -> str | None:
        """Name the table in which torch has a handler or a rule, under any override of ours."""
        for table in (HANDLERS, *RULE_TABLES):
            entry = LEDGER.original(table, op)
            if entry is not None and not is_programs(entry):
                return table
        return None
