"""Ops by name, and what torch itself has for them."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch._ops import OpOverload

from dtensor_registry.torch_patch.program_rules import is_programs
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER
from dtensor_registry.torch_patch.variants import variants_of
from dtensor_registry.torch_runtime.compat import RULE_TABLES
from dtensor_registry.torch_runtime.ops import find_op

Op: TypeAlias = OpOverload
"""An operator overload."""

SINGLE_DIM = "op_single_dim_strategy_funcs"


class TorchCatalog:
    """Answers for resolution: which overloads exist, and which torch runs by its own rule."""

    def overloads(self, name: str) -> tuple[str, ...]:
        """List the overloads that `aten.mm` or `aten.mm.default` stands for, if any exist yet."""
        if name.count(".") == 2:
            return () if find_op(name) is None else (name,)
        namespace, _, op = name.partition(".")
        packet = getattr(getattr(torch.ops, namespace), op, None)
        if packet is None:
            return ()
        return tuple(f"{name}.{overload}" for overload in packet.overloads())

    def variants(self, op: str) -> tuple[str, ...]:
        """List the other forms of an overload: in place, `out=`, over lists."""
        overload = find_op(op)
        return () if overload is None else tuple(map(str, variants_of(overload)))

    def torch_table(self, op: str) -> str | None:
        """Name the table in which torch has a handler or a rule, under any override of ours."""
        # The name of a packet stands here only while its library is not imported.
        overload = find_op(op) if op.count(".") == 2 else None
        if overload is None:
            return None
        for table in (HANDLERS, *RULE_TABLES):
            entry = LEDGER.original(table, overload)
            if entry is not None and not is_programs(entry):
                return table
        return None
