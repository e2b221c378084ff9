"""Differences between bare torch and adopted rules, and the reasons that they may have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch._ops import OpOverload
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema

from tests.adoption.calls import Call
from tests.adoption.decisions import Decision, show, specs

MISTAKEN = "torch takes the op for one in place, by the last letter of its name"
LOST = "torch moves an argument that the op writes to: the write would be lost"
REFUSED = "torch plans a move that its runtime refuses (R to P(product)), or that divides integers"
NEEDLESS = "torch moves list elements that could stay, at no cost: it takes the first of equals"
TIE = "a tie of costs, which torch breaks by the order of a set"


@dataclass(frozen=True, slots=True)
class Case:
    """One call from one choice of placements, decided by torch and once adopted."""

    call: Call
    schema: OpSchema
    torch: Decision
    adopted: Decision

    def __str__(self) -> str:
        return (
            f"{self.call}\n  from {show(self.schema)}\n  torch {self.torch}\n  here  {self.adopted}"
        )


def why(case: Case) -> str | None:
    """Name the reason of a difference; there is none for an answer that merely costs more."""
    schema = case.call.op._schema
    if case.torch.error is None:
        if _loses_a_write(case):
            return LOST
        if any(_refused(before, after) for before, after in _moves(case)):
            return REFUSED
        if case.adopted.cost > case.torch.cost:
            return None
    if schema.name.endswith("_") and not schema.is_mutable:
        return MISTAKEN
    if case.torch.error is None and case.adopted.cost == case.torch.cost:
        if "_foreach_" in schema.name and case.adopted.moved is None:
            return NEEDLESS
        if decomposed([case.call.op]):
            return TIE
    return None


def _moves(case: Case) -> list[tuple[DTensorSpec, DTensorSpec]]:
    """List what torch's decision makes of each input."""
    if case.torch.moved is None:
        return []
    before, after = (
        specs((schema.args_schema, schema.kwargs_schema))
        for schema in (case.schema, case.torch.moved)
    )
    return list(zip(before, after, strict=True))


def _refused(before: DTensorSpec, after: DTensorSpec) -> bool:
    """Say whether a whole tensor would become partial as it cannot."""
    meta = before.tensor_meta
    assert meta is not None
    kinds = {
        new.reduce_op
        for old, new in zip(before.placements, after.placements, strict=True)
        if isinstance(new, Partial) and not isinstance(old, Partial)
    }
    inexact = meta.dtype.is_floating_point or meta.dtype.is_complex
    return not kinds <= {"avg", "max", "min", "sum"} or ("sum" in kinds and not inexact)


def _loses_a_write(case: Case) -> bool:
    """Say whether torch's decision moves what the op writes to; the op then writes to a copy."""
    arguments = case.call.op._schema.arguments
    written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    if case.torch.moved is None or not written:
        return False
    before, after = (
        {
            **dict(zip((a.name for a in arguments), schema.args_schema, strict=False)),
            **schema.kwargs_schema,
        }
        for schema in (case.schema, case.torch.moved)
    )
    return any(
        old.placements != new.placements
        for name in written
        for old, new in zip(specs(before.get(name)), specs(after.get(name)), strict=True)
    )


def decomposed(ops: Iterable[OpOverload]) -> list[OpOverload]:
    """Keep of some ops those without a rule of their own, which torch decomposes."""
    prop = DTensor._op_dispatcher.sharding_propagator
    tables = (prop.op_single_dim_strategy_funcs, prop.op_strategy_funcs, prop.op_to_rules)
    return [
        op
        for op in ops
        if not any(op in table for table in tables) and prop.decomp_strategy.has_decomp(op)
    ]
