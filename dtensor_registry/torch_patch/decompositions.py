"""Ops that torch takes apart where it has no rule: what is changed in how it chooses for them.

Choices that would lose a write are left out, see `torch_runtime.decomposition`. torch also lists
the placements that it tries out of a set, so among equally cheap choices the hash of a string
decides, and two ranks may decide differently; while torch's rules are adopted the list is sorted.
"""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy

from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER
from dtensor_registry.torch_runtime.compat import RULE_TABLES
from dtensor_registry.torch_runtime.decomposition import leave_in_place, leave_out_uneven_means
from dtensor_registry.torch_runtime.dispatcher import propagator

_CANDIDATES = "_get_candidate_placements"


_PROPAGATE = "propagate_strategy"


def hook_in() -> None:
    """Leave choices out that lose a write, or average the means of uneven pieces."""
    strategy = propagator().decomp_strategy
    torchs = getattr(type(strategy), _PROPAGATE)

    def propagate(op_schema: OpSchema, *rest: Any) -> Any:
        found = torchs(strategy, op_schema, *rest)
        if not isinstance(found, OpStrategy):
            return found
        return leave_in_place(op_schema, leave_out_uneven_means(op_schema, found))

    setattr(strategy, _PROPAGATE, propagate)


def unhook() -> None:
    """Let torch choose, and list its candidates, as it does."""
    propagator().decomp_strategy.__dict__.pop(_PROPAGATE, None)
    sort_candidates(False)


def sort_candidates(wanted: bool) -> None:
    """Have torch try placements in an order of their own, or as it does."""
    strategy = propagator().decomp_strategy
    if not wanted:
        strategy.__dict__.pop(_CANDIDATES, None)
        return
    torch_candidates = getattr(type(strategy), _CANDIDATES)

    def candidates(op_schema: OpSchema) -> list[tuple[Any, ...]]:
        return sorted(torch_candidates(op_schema), key=_order)

    setattr(strategy, _CANDIDATES, candidates)


def is_decomposed(op: OpOverload) -> bool:
    """Say whether torch takes an op apart where it has no rule for it.

    >>> import torch
    >>> is_decomposed(torch.ops.aten.exp.Scalar)  # TorchScript's alone: it is never dispatched
    False
    """
    try:
        return bool(propagator().decomp_strategy.has_decomp(op))
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
        return False


def is_only_decomposed(op: OpOverload) -> bool:
    """Say whether torch itself has nothing for an op but its decomposition."""
    tables = (*RULE_TABLES, HANDLERS)
    return is_decomposed(op) and all(LEDGER.original(table, op) is None for table in tables)


def _order(placements: tuple[Any, ...]) -> tuple[tuple[bool, str], ...]:
    """Replicate first, then by what is printed."""
    return tuple((p is not None and not p.is_replicate(), str(p)) for p in placements)
