"""The host's expansion, in the place where torch calls its own.

torch's propagator looks an op's single-dim rule up and hands it to one module global. While
the host is installed that global is `expand`: rules of plugins are decided here, and torch's
own rules too where an installation adopts them. Everything else goes on to torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._decompositions import PlacementTrackingMode
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, StrategyType
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from dtensor_registry.errors import (
    FallbackRefusedError,
    InPlacePlacementError,
    NoValidRowError,
    RandomOpError,
    RegistryError,
    RuleError,
)
from dtensor_registry.placements import REPLICATE, show_placed
from dtensor_registry.planner import Candidate, candidates, cheapest, objections
from dtensor_registry.torch_runtime.call import Call, is_concrete, read_call, tensor_specs
from dtensor_registry.torch_runtime.conversion import placements_to_torch
from dtensor_registry.torch_runtime.decision import Decision, report
from dtensor_registry.torch_runtime.decomposition import decomposition_choices, is_composite
from dtensor_registry.torch_runtime.dispatcher import dispatcher
from dtensor_registry.torch_runtime.dry_run import fails_on_empty, resized, takes_global_sizes
from dtensor_registry.torch_runtime.explain_command import command_for
from dtensor_registry.torch_runtime.foreach import decide_elements, runs_per_element
from dtensor_registry.torch_runtime.installed_rule import InstalledRule, TorchRule, torch_rule
from dtensor_registry.torch_runtime.move_prices import asker, can_move, pricer
from dtensor_registry.torch_runtime.schema import facts

Expanded = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]

EXPAND = "_expand_single_dim_strategy_to_mesh"
"""The module global of `_sharding_prop` that torch calls to expand a rule."""

TORCH_EXPAND: Callable[..., Expanded] = getattr(_sharding_prop, EXPAND)
"""torch's own expansion, to hand over to."""

_adopting = False


def adopt(torch_rules: bool) -> None:
    """Say whether torch's own rules are decided here as well, or left to torch."""
    global _adopting
    _adopting = torch_rules


def filters_choices(strategy_info: _SingleDimStrategyInfo) -> bool:
    """Say whether torch takes out choices for the whole mesh that its rows for one mesh dim allow.

    Such a rule is right under torch's own expansion only: the mean of uneven pieces is an example.

    Source: `full_mesh_strategy_filter` of `register_single_dim_strategy`, torch 2.14 and later.
    """
    return getattr(strategy_info, "full_mesh_strategy_filter", None) is not None


def expand(
    mesh: DeviceMesh, op_schema: OpSchema, strategy_info: _SingleDimStrategyInfo, output_meta: Any
) -> Expanded:
    """Stand in for torch's `_expand_single_dim_strategy_to_mesh`.

    Returns:
        A function `(op, args_meta, kwargs_meta) -> OpStrategy`: with the one cheapest choice
        when every input has one source, with all valid ones otherwise.
    """
    given = strategy_info.func
    if isinstance(given, InstalledRule):
        rule: InstalledRule | TorchRule = given
    elif _adopting and not filters_choices(strategy_info):
        rule = torch_rule(given, strategy_info.allow_uneven_sharding)
    else:
        return TORCH_EXPAND(mesh, op_schema, strategy_info, output_meta)

    def expanded(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StrategyType:
        if runs_per_element(op_schema):
            decided = _decide_each(rule, op_schema, output_meta)
        else:
            decision = decide(rule, op_schema, output_meta)
            decided = None if decision is None else strategy_of(decision)
        if decided is not None:
            return decided
        report(Decision(op_schema, rule=rule if isinstance(rule, InstalledRule) else None))
        hand_over = TORCH_EXPAND(mesh, op_schema, strategy_info, output_meta)
        return cast(StrategyType, hand_over(op, args, kwargs))

    return expanded


def _decide_each(
    rule: InstalledRule | TorchRule, op_schema: OpSchema, output_meta: Any
) -> StrategyType | None:
    """Decide an op over lists element by element; the first stands for all that is reported."""
    made: list[Decision] = []

    def decide_one(element: OpSchema, element_meta: Any) -> OpStrategy | None:
        decision = decide(rule, element, element_meta)
        if decision is None:
            return None
        made.append(decision)
        return strategy_of(decision)

    decided = decide_elements(op_schema, output_meta, decide_one)
    if decided is not None:
        report(replace(made[0], schema=op_schema, elements=len(decided.children)))
    return decided


def decide(
    rule: InstalledRule | TorchRule,
    op_schema: OpSchema,
    output_meta: Any,
    executing: bool = False,
) -> Decision | None:
    """Choose the placements of one call, and report what was decided.

    Args:
        rule: what gives the rows.
        op_schema: the call, its tensors given as strategies.
        output_meta: metadata of the outputs, as torch's propagator keeps it.
        executing: whether the host will run the op, so that keyword tensors can move.

    Returns:
        The decision, or None for a call that is torch's to decide: sizes are symbols, there are
        several meshes, or torch's own rule has no row that the host would call right.

    Raises:
        RuleError: if a plugin's rule fails.
        NoValidRowError: if no combination of a plugin's rows is valid.
        FallbackRefusedError: likewise, for a fallback.
    """
    specs = tensor_specs(op_schema)
    if not specs or not is_concrete(specs):
        return None
    if rule.fallback is not None and _inside_decomposition():
        # A fallback comes after decompositions, so it must not make one possible.
        raise NotImplementedError(
            f"Operator {op_schema.op} does not have a sharding strategy registered."
        )
    call: Call | str | None = None
    passed_over = ""
    try:
        call = read_call(rule, op_schema, specs, output_meta, executing)
        if isinstance(call, str):
            if isinstance(rule, TorchRule):
                return None
            raise RuleError(str(op_schema.op), rule.origin.plugin, str(rule.origin), call)
        choices: Sequence[Candidate] = ()
        if any(len(sources) > 1 for sources in call.specs):
            choices = candidates(call.problem, pricer(call.mesh, call.specs))
        best = None if choices else _cheapest(call)
        if isinstance(rule, TorchRule):
            if not choices and best is None:
                return None
        elif not choices:
            if best is not None and fails_on_empty(call, op_schema, best, rule.local_arguments):
                # One rank would raise while the others wait for it: such pieces are not offered.
                call = replace(call, problem=replace(call.problem, every_rank_has_some=True))
                best = _cheapest(call)
            try:
                if best is None or _impossible_moves(call, best):
                    raise _no_valid_row(call, op_schema, rule)
                _refuse_choice(call, op_schema, best, rule)
            except (NoValidRowError, RandomOpError, RuleError) as refused:
                if not rule.decomposes:
                    raise
                passed_over = str(refused).partition("\n")[0]
                best = _through_decomposition(call, op_schema, output_meta, rule, refused)
    except Exception as error:
        known = call if isinstance(call, Call) else None
        report(
            Decision(
                op_schema, op_schema, rule=rule, call=known, passed_over=passed_over, error=error
            )
        )
        raise
    chosen = tuple(choices) if best is None else (best,)
    decision = Decision(
        op_schema, op_schema, rule=rule, call=call, choices=chosen, passed_over=passed_over
    )
    report(decision)
    return decision


def strategy_of(decision: Decision) -> OpStrategy:
    """Write what was chosen as torch's own value."""
    assert decision.call is not None
    return OpStrategy([_op_spec(decision.call, choice) for choice in decision.choices])


def _through_decomposition(
    call: Call, op_schema: OpSchema, output_meta: Any, rule: InstalledRule, refused: RegistryError
) -> Candidate:
    """Choose what torch would without the rule, where the rule has no way to run a call.

    Each choice is held to what a choice of rows is: nothing is written to a copy, no rank raises
    alone, ranks that must agree draw no numbers.

    Raises:
        RegistryError: what the rule was refused for, if there is no such choice, and that.
        NotImplementedError: likewise, for an op that torch takes into parts then.
    """
    stopped = "it has no choice that leaves what the op writes to in its place"
    try:
        for choice in decomposition_choices(call, op_schema, output_meta):
            moves = _impossible_moves(call, choice)
            if moves or fails_on_empty(call, op_schema, choice, rule.local_arguments):
                stopped = moves[0] if moves else "a rank that holds nothing would raise alone"
                continue
            try:
                _refuse_choice(call, op_schema, choice, rule)
            except (RandomOpError, RuleError) as error:
                stopped = str(error).partition("\n")[0]
                continue
            return choice
    except Exception as error:  # whatever stops torch in the op's parts
        stopped = str(error).partition("\n")[0] or type(error).__name__
    told = f"{refused}\n  Nor can torch run it by the op's decomposition: {stopped}"
    if is_composite(call.op):
        raise NotImplementedError(told) from refused
    refused.args = (told,)
    raise refused


def _cheapest(call: Call) -> Candidate | None:
    choice = cheapest(call.problem, asker(call.specs))
    return None if choice is None else choice.candidate


def _impossible_moves(call: Call, choice: Candidate) -> list[str]:
    """List the moves of a choice that torch cannot make.

    An infinite price alone says nothing: torch gives no other to most moves of strided shards,
    makes them all the same, and takes such a choice where it has no cheaper one.
    """
    if not math.isinf(choice.cost):
        return []
    return [
        f"torch cannot turn input {at} from {show_placed(tensor.sources[0])} into"
        f" {show_placed(wanted)}"
        for at, (tensor, wanted) in enumerate(zip(call.problem.inputs, choice.inputs, strict=True))
        if not can_move(tensor.sources[0], wanted)
    ]


def _refuse_choice(call: Call, op_schema: OpSchema, choice: Candidate, rule: InstalledRule) -> None:
    """Refuse what a rule's rows allow and the op, or a setting, does not.

    Raises:
        FallbackRefusedError: if a fallback would move more bytes than the settings allow.
        RandomOpError: if ranks that must agree would draw different random numbers.
        RuleError: if the op changes the shape of what it writes to, or takes a size of the whole.
    """
    op = str(call.op)
    moved = [
        tensor.nbytes
        for tensor, target in zip(call.problem.inputs, choice.inputs, strict=True)
        if tensor.sources[0] != target
    ]
    refuse_too_much(op, rule, sum(moved))
    reason = resized(call, op_schema)
    if reason is not None and rule.fallback is not None:
        raise FallbackRefusedError(op, [(rule.fallback, reason)], command_for(op_schema))
    problem = reason or takes_global_sizes(call, op_schema, choice, rule.local_arguments)
    if problem is not None:
        raise RuleError(op, rule.origin.plugin, str(rule.origin), problem)
    draws = rule.draws(call.op, op_schema.args_meta, op_schema.kwargs_meta)
    if draws and call.op not in dispatcher()._random_ops:
        for at, placements in enumerate(choice.outputs):
            for mesh_dim, placement in enumerate(placements or ()):
                if placement == REPLICATE and call.problem.mesh_shape[mesh_dim] > 1:
                    explain = command_for(op_schema)
                    raise RandomOpError(op, str(rule.origin), at, mesh_dim, explain)


def refuse_too_much(op: str, rule: InstalledRule, moved: int) -> None:
    """Refuse a call of a fallback that moves more than the settings allow.

    Args:
        op: the op.
        rule: what runs it.
        moved: bytes of the inputs that are to be redistributed, once gathered.

    Raises:
        FallbackRefusedError: if that is more than `fallback.max_bytes`.
    """
    if rule.fallback is not None and rule.max_bytes is not None and moved > rule.max_bytes:
        too_much = f"it would gather {moved} bytes, fallback.max_bytes is {rule.max_bytes}"
        raise FallbackRefusedError(op, [(rule.fallback, too_much)])


def _op_spec(call: Call, candidate: Candidate) -> OpSpec:
    """Write a choice as torch's own value; an input that stays keeps its very spec."""
    inputs = [
        sources[0]
        if len(sources) == 1 and placements == tensor.sources[0]
        else DTensorSpec(
            call.mesh, placements_to_torch(placements), tensor_meta=sources[0].tensor_meta
        )
        for sources, tensor, placements in zip(
            call.specs, call.problem.inputs, candidate.inputs, strict=True
        )
    ]
    known = facts(call.op)
    outputs = candidate.outputs
    listed = known.list_output and call.listed
    if listed and len(outputs) == 1:
        outputs *= len(call.metas)
    specs = [
        None
        if placements is None or meta is None
        else DTensorSpec(call.mesh, placements_to_torch(placements), tensor_meta=meta)
        for placements, meta in zip(outputs, call.metas, strict=True)
    ]
    output_specs: Any = tuple(specs) if listed else next(iter(specs), None)
    if len(known.outputs) > 1:
        # torch wants one entry per return, None for one that is no tensor.
        rest = iter(specs)
        output_specs = tuple(next(rest) if tensor else None for tensor, _ in known.outputs)
    return OpSpec(output_specs, inputs, [list(costs) for costs in candidate.costs])


def _inside_decomposition() -> bool:
    return any(
        isinstance(mode, PlacementTrackingMode) for mode in _get_current_dispatch_mode_stack()
    )


def _no_valid_row(call: Call, op_schema: OpSchema, rule: InstalledRule) -> Exception:
    reasons = list(objections(call.problem, at_most=100))
    valid = candidates(call.problem, pricer(call.mesh, call.specs))
    for candidate in valid:
        reasons += _impossible_moves(call, candidate)
    reasons = list(dict.fromkeys(reasons))
    op = str(call.op)
    if rule.fallback is not None:
        return FallbackRefusedError(op, [(rule.fallback, reasons[0])], command_for(op_schema))
    inputs = ", ".join(
        f"{tensor.shape}@{show_placed(tensor.sources[0])}" for tensor in call.problem.inputs
    )
    shown = reasons[:8] + ([f"... {len(reasons) - 8} more"] if len(reasons) > 8 else [])
    mesh = "x".join(map(str, call.problem.mesh_shape))
    explain = command_for(op_schema)
    told = (op, rule.origin.plugin, str(rule.origin), inputs, mesh, shown, explain)
    packet, _, overload = op.rpartition(".")
    if packet.endswith("_") and facts(call.op).mutates and not valid:
        first = call.problem.inputs[0].sources[0]
        return InPlacePlacementError(
            *told, placement=show_placed(first), out_of_place=f"{packet[:-1]}.{overload}"
        )
    return NoValidRowError(*told)
