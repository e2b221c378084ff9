"""From a contribution that won to the entry that torch's tables will hold."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry._torch.catalog import SINGLE_DIM, find_op
from dtensor_registry._torch.corrected import as_rule_of, corrected_entry, corrected_rule
from dtensor_registry._torch.execute import Executor
from dtensor_registry._torch.loan import INSTALLATIONS, LOAN, Entry
from dtensor_registry._torch.rule import InstalledRule
from dtensor_registry._torch.schema import facts, runtime_schema_info
from dtensor_registry._torch.signature import signature
from dtensor_registry._torch.tables import HANDLERS, LEDGER
from dtensor_registry._torch.variants import base_of, derived, widened
from dtensor_registry.discovery import LOCAL, Contribution
from dtensor_registry.errors import InstallError, InvalidContributionError, NotationError
from dtensor_registry.resolution import Resolution
from dtensor_registry.rules import Rule, SingleDimStrategy, Without
from dtensor_registry.rules.signature import Signature, bind


def single_dim_entry(op: OpOverload, contribution: Contribution, resolution: Resolution) -> Entry:
    """Make the entry of one op from the contribution that won it.

    Raises:
        InstallError: if torch runs the op through a handler that passes rules over, or the
            rule is `like` an op that has no rule to take.
    """
    strategy = contribution.strategy
    if isinstance(strategy.rule, Without):
        return corrected_entry(op, contribution)
    handler = LEDGER.original(HANDLERS, op)
    if handler is not None:
        named = getattr(handler, "__name__", repr(handler))
        raise InstallError(
            f"a sharding rule for {op} would not be honoured: torch runs this op through its"
            f" handler {named!r}, which does not redistribute what a rule asks for.\n"
            f"  rule of {contribution.origin}\n  Leave it out:"
            f"  DTENSOR_REGISTRY_DISABLED='[\"{contribution.origin.plugin}:{op}\"]'"
        )
    rule = InstalledRule(
        bound_rule(op, contribution, resolution),
        contribution.origin,
        strategy.allow_uneven_sharding,
        allow_empty_pieces=strategy.allow_empty_pieces,
    )
    info = _SingleDimStrategyInfo(
        rule,
        allow_unbacked_sharding=strategy.allow_unbacked_sharding,
        allow_uneven_sharding=strategy.allow_uneven_sharding,
    )
    given = strategy.schema_info
    schema_info = runtime_schema_info(op, widened(given, op) if _base(op, contribution) else given)
    known = facts(op)
    executes = known.beyond_torch or (given is None and known.complex_in_key)
    executor = Executor(rule, info, schema_info) if executes else None
    return Entry(info, schema_info, executor)


def full_mesh_entry(op: OpOverload, strategy_function: Any, schema_info: Any) -> Entry:
    """Make the entry of one op from a function `(op_schema) -> OpStrategy`."""
    return Entry(strategy_function, runtime_schema_info(op, schema_info))


def bound_rule(op: OpOverload, contribution: Contribution, resolution: Resolution) -> Rule:
    """Bind the rule of a contribution to its op, and follow `like(...)` to other ops' rules.

    Raises:
        InstallError: if the rule does not fit the op, or is like one that has no rule to take.
    """
    base = _base(op, contribution)
    rule = _bound(contribution.strategy, base or op, contribution, resolution, ())
    return rule if base is None else derived(rule, base, op)


def _base(op: OpOverload, contribution: Contribution) -> OpOverload | None:
    """Find the op that a strategy is really about, where it reaches `op` as a form of that."""
    reaches = contribution.strategy.variants and str(op) != contribution.op
    return base_of(op) if reaches else None


def _bound(
    strategy: SingleDimStrategy,
    op: OpOverload,
    contribution: Contribution,
    resolution: Resolution,
    seen: tuple[str, ...],
) -> Rule:
    def rule_of(name: str) -> tuple[Rule, Signature]:
        if name in seen:
            raise _nothing_like(name, contribution, f"it leads back to itself: {list(seen)}")
        target = find_op(name)
        if target is None:
            raise _nothing_like(name, contribution, "that op does not exist")
        theirs = signature(target).with_aliases(strategy.aliases)
        verdict = resolution.verdicts.get(name)
        if verdict is not None and verdict.winner is not None:
            found = verdict.winner.strategy
            if isinstance(found.rule, Without):
                return as_rule_of(target, corrected_rule(target, verdict.winner)), theirs
            return _bound(found, target, contribution, resolution, (*seen, name)), theirs
        lent = LOAN.find(target)
        # Another installation is covered by the one that this entry is for.
        above = lent is not None and (
            lent[0].height > INSTALLATIONS or contribution.origin.plugin == LOCAL
        )
        if lent is not None and above and lent[1].executor is not None:
            return lent[1].executor.rule.rule, theirs
        info = LEDGER.original(SINGLE_DIM, target)
        if info is None:
            raise _nothing_like(name, contribution, "that op has no single-dim rule")
        return as_rule_of(target, info.func), theirs

    try:
        return bind(strategy.rule, signature(op).with_aliases(strategy.aliases), rule_of)
    except (InvalidContributionError, NotationError) as error:
        raise InstallError(
            f"the sharding rule for {op} does not fit it: {error}\n"
            f"  rule of {contribution.origin}\n  Until it is mended:"
            f"  DTENSOR_REGISTRY_DISABLED='[\"{contribution.origin.plugin}:{op}\"]'"
        ) from error


def _nothing_like(name: str, contribution: Contribution, problem: str) -> InstallError:
    return InstallError(
        f"{contribution.op} is to be sharded like {name}, but {problem}.\n"
        f"  rule of {contribution.origin}\n  Name an op that has a rule, or write one."
    )
