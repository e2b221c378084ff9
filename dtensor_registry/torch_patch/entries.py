"""From a contribution that won to the entry that torch's tables will hold."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry.discovery import LOCAL, Contribution
from dtensor_registry.errors import InvalidContributionError, MisfitError, NotationError
from dtensor_registry.resolution import Resolution
from dtensor_registry.rules import Amended, Rule, Without
from dtensor_registry.rules.signature import Signature, bind
from dtensor_registry.rules.strategy import MAX_ROWS
from dtensor_registry.torch_patch.catalog import SINGLE_DIM
from dtensor_registry.torch_patch.corrected_rules import as_rule_of, corrected_entry, corrected_rule
from dtensor_registry.torch_patch.decompositions import is_only_decomposed
from dtensor_registry.torch_patch.layers import INSTALLATIONS, Entry
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER
from dtensor_registry.torch_patch.variants import base_of, derived, widened
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.execute import Executor
from dtensor_registry.torch_runtime.handlers import HandlerOrRule, handler_name
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry.torch_runtime.schema import facts, runtime_schema_info


def single_dim_entry(
    op: OpOverload,
    contribution: Contribution,
    resolution: Resolution,
    max_rows: int = MAX_ROWS,
) -> Entry:
    """Make the entry of one op from the contribution that won it.

    Args:
        op: the op.
        contribution: its rule.
        resolution: who has the rules that this one may refer to.
        max_rows: rows that it may give for one call.

    Raises:
        MisfitError: if the rule does not fit the op, torch runs the op through a handler that
            passes rules over, or the rule is `like` an op that has no rule to take.
    """
    strategy = contribution.strategy
    if isinstance(strategy.rule, Without):
        return corrected_entry(op, contribution)
    if isinstance(strategy.rule, Amended):
        return _amended_entry(op, contribution, strategy.rule)
    handler = LEDGER.original(HANDLERS, op)
    replaces = strategy.replaces_handler
    if replaces is not None and replaces != (named := handler_name(handler)):
        raise _misfit(
            op,
            contribution,
            f"a sharding rule for {op} was written to replace torch's handler {replaces},"
            f" and this torch has {'none' if handler is None else named}.",
        )
    if handler is not None and replaces is None:
        named = getattr(handler, "__name__", repr(handler))
        raise _misfit(
            op,
            contribution,
            f"a sharding rule for {op} would not be honoured: torch runs this op through its"
            f" handler {named!r}, which does not redistribute what a rule asks for.",
        )
    decomposes = is_only_decomposed(op)
    rule = InstalledRule(
        bound_rule(op, contribution, resolution),
        contribution.origin,
        strategy.allow_uneven_sharding,
        allow_empty_pieces=strategy.allow_empty_pieces,
        random=strategy.random,
        local_arguments=strategy.local_arguments,
        max_rows=max_rows,
        decomposes=decomposes,
    )
    info = _SingleDimStrategyInfo(
        rule,
        allow_unbacked_sharding=strategy.allow_unbacked_sharding,
        allow_uneven_sharding=strategy.allow_uneven_sharding,
    )
    # A decomposition may read what the rule does not.
    given = None if decomposes else strategy.schema_info
    schema_info = runtime_schema_info(op, widened(given, op) if _base(op, contribution) else given)
    known = facts(op)
    executes = known.beyond_torch or (given is None and known.complex_in_key)
    if not executes and handler is None and strategy.local_arguments is None:
        return Entry(info, schema_info)
    executor = Executor(rule, info, schema_info)
    if handler is None:
        return Entry(info, schema_info, executor)
    torchs = LEDGER.original(SINGLE_DIM, op)
    return Entry(info, schema_info, HandlerOrRule(handler, torchs, executor))


def _amended_entry(op: OpOverload, contribution: Contribution, rule: Amended) -> Entry:
    """Make the entry of one op that torch runs in its own way, but for some calls."""
    amended = AmendedTorch(rule, contribution.origin)
    handler = LEDGER.original(HANDLERS, op)
    return Entry(
        amended,
        runtime_schema_info(op, contribution.strategy.schema_info),
        None if handler is None else amended.handler(handler),
    )


def full_mesh_entry(op: OpOverload, strategy_function: Any, schema_info: Any) -> Entry:
    """Make the entry of one op from a function `(op_schema) -> OpStrategy`."""
    return Entry(strategy_function, runtime_schema_info(op, schema_info))


def bound_rule(
    op: OpOverload,
    contribution: Contribution,
    resolution: Resolution,
    seen: tuple[str, ...] = (),
) -> Rule:
    """Bind the rule of a contribution to its op, and follow `like(...)` to other ops' rules.

    Args:
        op: the overload.
        contribution: the one that wins it.
        resolution: who wins the ops that the rule is like.
        seen: the ops whose rules led here.

    Raises:
        MisfitError: if the rule does not fit the op, or is like one that has no rule to take.
    """
    strategy = contribution.strategy

    def rule_of(name: str) -> tuple[Rule, Signature]:
        if name in seen:
            raise _nothing_like(name, op, contribution, f"it leads back to itself: {list(seen)}")
        target = find_op(name)
        if target is None:
            raise _nothing_like(name, op, contribution, "that op does not exist")
        theirs = facts(target).signature.with_aliases(strategy.aliases)
        verdict = resolution.verdicts.get(name)
        if verdict is not None and verdict.winner is not None:
            if isinstance(verdict.winner.strategy.rule, Without):
                return as_rule_of(target, corrected_rule(target, verdict.winner)), theirs
            return bound_rule(target, verdict.winner, resolution, (*seen, name)), theirs
        lent = LOAN.find(target)
        # Another installation is covered by the one that this entry is for.
        above = lent is not None and (
            lent[0].height > INSTALLATIONS or contribution.origin.plugin == LOCAL
        )
        if lent is not None and above and lent[1].executor is not None:
            return lent[1].executor.rule.rule, theirs
        info = LEDGER.original(SINGLE_DIM, target)
        if info is None:
            raise _nothing_like(name, op, contribution, "that op has no single-dim rule")
        return as_rule_of(target, info.func), theirs

    base = _base(op, contribution)
    declared = facts(base or op).signature.with_aliases(strategy.aliases)
    try:
        rule = bind(strategy.rule, declared, rule_of)
    except (InvalidContributionError, NotationError) as error:
        problem = f"the sharding rule for {declared.op} does not fit it: {error}"
        raise _misfit(op, contribution, problem) from error
    return rule if base is None else derived(rule, base, op)


def _base(op: OpOverload, contribution: Contribution) -> OpOverload | None:
    """Find the op that a strategy is really about, where it reaches `op` as a form of that."""
    reaches = contribution.strategy.variants and str(op) != contribution.op
    return base_of(op) if reaches else None


def _nothing_like(
    name: str, op: OpOverload, contribution: Contribution, problem: str
) -> MisfitError:
    told = f"{contribution.op} is to be sharded like {name}, but {problem}."
    return _misfit(op, contribution, told, "Name an op that has a rule, or write one.")


def _misfit(
    op: OpOverload, contribution: Contribution, problem: str, advice: str = ""
) -> MisfitError:
    origin = contribution.origin
    return MisfitError(str(op), origin.plugin, str(origin), problem, advice)
