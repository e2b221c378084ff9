"""From a contribution that won to the entry that torch's tables will hold."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry._torch.catalog import SINGLE_DIM, find_op
from dtensor_registry._torch.execute import Executor
from dtensor_registry._torch.loan import Entry
from dtensor_registry._torch.rule import InstalledRule
from dtensor_registry._torch.schema import facts, runtime_schema_info
from dtensor_registry._torch.tables import HANDLERS, LEDGER
from dtensor_registry.discovery import Contribution
from dtensor_registry.errors import InstallError
from dtensor_registry.resolution import Resolution
from dtensor_registry.rules import Like, Rule


def single_dim_entry(op: OpOverload, contribution: Contribution, resolution: Resolution) -> Entry:
    """Make the entry of one op from the contribution that won it.

    Raises:
        InstallError: if torch runs the op through a handler that passes rules over, or the
            rule is `like` an op that has no rule to take.
    """
    strategy = contribution.strategy
    handler = LEDGER.original(HANDLERS, op)
    if handler is not None:
        raise InstallError(
            f"a sharding rule for {op} would not be honoured: torch runs this op through its"
            f" handler {handler.__name__!r}, which does not redistribute what a rule asks for.\n"
            f"  rule of {contribution.origin}\n  Leave it out:"
            f"  DTENSOR_REGISTRY_DISABLED='[\"{contribution.origin.plugin}:{op}\"]'"
        )
    rule = InstalledRule(
        _followed(strategy.rule, contribution, resolution),
        contribution.origin,
        strategy.allow_uneven_sharding,
    )
    info = _SingleDimStrategyInfo(
        rule,
        allow_unbacked_sharding=strategy.allow_unbacked_sharding,
        allow_uneven_sharding=strategy.allow_uneven_sharding,
    )
    schema_info = runtime_schema_info(op, strategy.schema_info)
    known = facts(op)
    executor = Executor(rule, info, schema_info) if known.beyond_torch else None
    return Entry(info, schema_info, executor)


def full_mesh_entry(op: OpOverload, strategy_function: Any, schema_info: Any) -> Entry:
    """Make the entry of one op from a function `(op_schema) -> OpStrategy`."""
    return Entry(strategy_function, runtime_schema_info(op, schema_info))


def _followed(rule: Rule, contribution: Contribution, resolution: Resolution) -> Rule:
    """Follow `like(op)` to the rule that `op` has in this resolution, or in torch."""
    seen: list[str] = []
    while isinstance(rule, Like):
        if rule.op in seen:
            raise _nothing_like(rule.op, contribution, f"it leads back to itself: {seen}")
        seen.append(rule.op)
        verdict = resolution.verdicts.get(rule.op)
        if verdict is not None and verdict.winner is not None:
            rule = verdict.winner.strategy.rule
            continue
        op = find_op(rule.op)
        if op is None:
            raise _nothing_like(rule.op, contribution, "that op does not exist")
        info = LEDGER.original(SINGLE_DIM, op)
        if info is None:
            raise _nothing_like(rule.op, contribution, "that op has no single-dim rule")
        return _torch_rule(op, info.func)
    return rule


def _torch_rule(op: OpOverload, func: Any) -> Rule:
    """Ask torch's rule as if it were asked for its own op."""

    def rule(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(op, args, kwargs)

    return rule


def _nothing_like(name: str, contribution: Contribution, problem: str) -> InstallError:
    return InstallError(
        f"{contribution.op} is to be sharded like {name}, but {problem}.\n"
        f"  rule of {contribution.origin}\n  Name an op that has a rule, or write one."
    )
