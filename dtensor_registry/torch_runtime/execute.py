"""The executing path: the host runs an op itself, where torch's own path would be wrong.

torch moves positional tensors to where a decision wants them, runs the op and wraps the
results. It never moves keyword tensors, it loses the write when it moves an argument that
the op mutates, it finds no mesh in a list of keyword tensors, and it needs the shapes of
outputs before the op has run. An op whose schema has such a trait gets an `Executor` in
torch's table of handlers, which torch's dispatch asks before every cache: slower than a
cached decision, and right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.distributed.tensor import Replicate, _sharding_prop
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSpec
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.utils._pytree import tree_leaves

from dtensor_registry.errors import FallbackRefusedError, MutationError, RegistryError, RuleError
from dtensor_registry.planner import piece
from dtensor_registry.torch_runtime import decide, rule_epoch
from dtensor_registry.torch_runtime.arguments import Arguments, read_arguments
from dtensor_registry.torch_runtime.call import tensor_specs
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.decision import Deciding, Decision, owner_of_rule, report
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator
from dtensor_registry.torch_runtime.dry_run import RehearsalError, shape_is_changed
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.local_arguments import with_local_arguments
from dtensor_registry.torch_runtime.move_prices import nbytes_of
from dtensor_registry.torch_runtime.moved_views import is_marked, marked, note_move, plain_spec
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry.torch_runtime.shard_order import (
    has_own_order,
    is_pieces_alone,
    run_in_default_order,
)
from dtensor_registry.torch_runtime.write_through import write_through, written_views

_SHAPE_ERRORS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

_MISTOLD = ("aten._embedding_bag_forward_only.default", "aten.mkldnn_rnn_layer.default")


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each input goes and what each output is.

    Attributes:
        inputs: one spec per tensor, in row order.
        outputs: one entry per return, None for one that is no tensor; or None as a whole when
            shapes are known only after the op has run, and everything is replicated.
        decision: what was decided, None for a plan without.
    """

    inputs: tuple[DTensorSpec, ...]
    outputs: Any
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Executor:
    """Runs one op on DTensors by one rule; torch calls it as a handler.

    Attributes:
        rule: the rule.
        info: the same, as it stands in torch's table of single-dim rules.
        schema_info: what decides whether two calls can share a plan.
    """

    rule: InstalledRule
    info: _SingleDimStrategyInfo
    schema_info: Any

    def __call__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Bring every tensor where the rule wants it, run the op, write back, wrap.

        Raises:
            MixedTensorsError: if a plain tensor is among the DTensors.
            MutationError: if an argument cannot be written to as it is placed.
        """
        views = written_views(op, args, kwargs or {})
        if views:
            return write_through(op, args, kwargs or {}, views)
        call = read_arguments(op, args, kwargs or {}, self.schema_info)
        if any(map(has_own_order, call.specs)) and not is_pieces_alone(op, call.specs):
            return run_in_default_order(op, args, kwargs or {})
        plan = self._plan(call)
        if plan.decision is not None:
            report(plan.decision)
        return run_planned(call, plan, self.rule)

    def _plan(self, call: Arguments) -> Plan:
        if self.rule.fallback is not None:
            _refuse_partial_writes(call, self.rule)
        try:
            # Sizes that are symbols cannot be hashed, nor can some arguments.
            return _kept_plan(self, rule_epoch.current(), call.schema, _types(call.schema))
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            return self.make_plan(call.schema)

    def make_plan(self, schema: Any) -> Plan:
        """Decide a call as torch's propagator would, keyword tensors included."""
        known = {"rule": self.rule, "owner": owner_of_rule(self.rule), "executed": True}
        with Deciding(schema, **known) as deciding:
            plan = self._decided_plan(schema)
        decision = deciding.made(planned=(plan.inputs, plan.outputs), error=None)
        return replace(plan, decision=decision)

    def _decided_plan(self, schema: Any) -> Plan:
        strategy_schema = propagator()._wrap_with_op_strategy(schema)
        specs = [sources[0] for sources in tensor_specs(strategy_schema)]
        if self.rule.fallback is not None and is_mistold(schema.op):
            return self._whole(schema.op, specs)
        try:
            meta = propagator()._propagate_tensor_meta_non_cached(schema)
            decision = decide.decide(self.rule, strategy_schema, meta, executing=True)
        except Exception as error:
            if isinstance(error, RegistryError) and not isinstance(error, RehearsalError):
                raise
            # Only whole results can be described once they are there.
            if self.rule.fallback is None and not isinstance(error, _SHAPE_ERRORS):
                raise
            return self._whole(schema.op, specs)
        if decision is None:
            expanded = decide.TORCH_EXPAND(specs[0].mesh, strategy_schema, self.info, meta)
            decided = expanded(schema.op, strategy_schema.args_meta, strategy_schema.kwargs_meta)
        else:
            decided = decide.strategy_of(decision)
        chosen: OpSpec = _sharding_prop._select_min_cost_strategy(decided, schema)
        return Plan(tuple(chosen.input_specs or ()), chosen.output_specs)

    def _whole(self, op: OpOverload, specs: Sequence[DTensorSpec]) -> Plan:
        """Plan to have everything replicated, and to see then what comes out."""
        wanted = tuple(_replicated(spec) for spec in specs)
        moved = sum(
            nbytes_of(spec)
            for spec, target in zip(specs, wanted, strict=True)
            if spec.placements != target.placements
        )
        decide.refuse_too_much(str(op), self.rule, moved)
        return Plan(wanted, None)


def run_planned(
    call: Arguments,
    plan: Plan,
    rule: InstalledRule | None = None,
    written: Sequence[int] | None = None,
) -> Any:
    """Bring every tensor where a plan wants it, run the op, write back, wrap.

    Args:
        call: the call.
        plan: where its tensors go.
        rule: whose plan it is; None: torch's own.
        written: the tensors that the op writes to; None: as its schema says.

    Raises:
        MutationError: if an argument cannot be written to as it is placed.
    """
    op, held = call.schema.op, call.locals
    moved = [
        local
        if spec.placements == wanted.placements
        else redistribute_local_tensor(local, spec, wanted)
        for local, spec, wanted in zip(held, call.specs, plan.inputs, strict=True)
    ]
    if not call.mesh._is_current_rank_part_of_mesh():
        return _wrap(call, plan, _nothing(plan))
    if written is None:
        written = [at for at, (_, argument) in enumerate(call.declared) if argument.is_written]
    for at in written if plan.outputs is None else ():
        # Nobody has foreseen whether the op changes a shape: what is ours is kept till then.
        moved[at] = moved[at].clone() if moved[at] is held[at] else moved[at]
    shapes = {at: moved[at].shape for at in written}
    local_args, local_kwargs = call.replaced(moved)
    if rule is not None and rule.local_arguments is not None and plan.outputs is not None:
        local_args, local_kwargs = with_local_arguments(
            rule.local_arguments, op, local_args, local_kwargs, _local_shapes(plan)
        )
    results = op(*local_args, **local_kwargs)
    for at, shape in shapes.items():
        if rule is not None and moved[at].shape != shape:
            told = shape_is_changed(call.declared[at][0], shape, moved[at].shape)
            _refuse_resize(call, rule, told)
    for at in written:
        if moved[at] is not held[at]:
            held[at].copy_(_brought_back(call, at, moved[at], plan.inputs[at]))
    return _wrap(call, _noting_moves(call, plan, moved), results)


def _brought_back(call: Arguments, at: int, moved: torch.Tensor, spec: DTensorSpec) -> torch.Tensor:
    """Bring what was written to a moved argument to where the program has the argument.

    Raises:
        MutationError: if that is a pending sum of integers, of which no rank can have a share.
    """
    target = call.specs[at]
    if any(placement.is_partial() for placement in target.placements):
        sums = any(placement.is_partial("sum") for placement in target.placements)
        if sums and not (moved.dtype.is_floating_point or moved.dtype.is_complex):
            name, placed = call.declared[at][0], str(target.placements)
            raise MutationError(str(call.schema.op), name, placed, "the host")
        # torch makes addends of what is whole, and of nothing else.
        moved, spec = redistribute_local_tensor(moved, spec, _replicated(spec)), _replicated(spec)
    return redistribute_local_tensor(moved, spec, target)


def _refuse_resize(call: Arguments, rule: InstalledRule, told: str) -> NoReturn:
    """Refuse a write that changed a shape: a DTensor's shape is not its local tensor's."""
    op, origin = str(call.schema.op), rule.origin
    if rule.fallback is not None:
        raise FallbackRefusedError(op, [(rule.fallback, told)])
    raise RuleError(op, origin.plugin, str(origin), told)


def _noting_moves(call: Arguments, plan: Plan, moved: Sequence[torch.Tensor]) -> Plan:
    """Mark the outputs that are views of a moved input, and remember what was moved."""
    op = call.schema.op
    if not facts(op).view or plan.outputs is None:
        return plan
    of_a_copy = False
    for at, (_, argument) in enumerate(call.declared):
        if argument.alias and not argument.is_written:
            spec, tensor, held = call.specs[at], call.tensors[at], call.locals[at]
            if moved[at] is not held:
                note_move(
                    op, tensor, held, plain_spec(spec), moved[at], plain_spec(plan.inputs[at])
                )
                of_a_copy = True
            of_a_copy = of_a_copy or is_marked(spec)
    return replace(plan, outputs=marked(plan.outputs)) if of_a_copy else plan


def is_mistold(op: OpOverload) -> bool:
    """Say whether torch's fake kernel is known to tell other shapes than the CPU kernel returns.

    Source: `python -m tests.schema.aten_fallback` on torch 2.13.0.
    """
    return str(op) in _MISTOLD


def waits_for_shapes(error: BaseException) -> bool:
    """Say whether torch failed because it cannot know an op's output shapes beforehand."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _SHAPE_ERRORS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@lru_cache(maxsize=4096)
def _kept_plan(executor: Executor, epoch: int, schema: Any, types: tuple[type, ...]) -> Plan:
    """Keep plans as long as no rule changes; old epochs fall out as new plans come in."""
    return executor.make_plan(schema)


def _types(schema: Any) -> tuple[type, ...]:
    """List the types of all arguments: 2, 2.0 and, as 1, True are equal and mean other calls."""
    return tuple(map(type, tree_leaves((schema.args_schema, schema.kwargs_schema))))


def _refuse_partial_writes(call: Arguments, rule: InstalledRule) -> None:
    """A fallback writes back what the op wrote to a gathered copy; a pending sum has no place."""
    for spec, (name, argument) in zip(call.specs, call.declared, strict=True):
        if argument.is_written and any(placement.is_partial() for placement in spec.placements):
            raise MutationError(
                str(call.schema.op), name, str(spec.placements), f"fallback {rule.fallback!r}"
            )


def _replicated(spec: DTensorSpec) -> DTensorSpec:
    return DTensorSpec(spec.mesh, (Replicate(),) * spec.mesh.ndim, tensor_meta=spec.tensor_meta)


def _wrap(call: Arguments, plan: Plan, results: Any) -> Any:
    """Wrap results as DTensors; a result that is an argument itself is that very argument."""
    known = facts(call.schema.op)
    specs = plan.outputs
    if specs is None:
        specs = _specs_of(results, call)
    if not isinstance(results, (list, tuple)) or known.list_output:
        return _wrap_one(call, known.outputs, results, specs, 0)
    wrapped = [
        _wrap_one(call, known.outputs, result, spec, at)
        for at, (result, spec) in enumerate(zip(results, specs, strict=True))
    ]
    return tuple(wrapped)


def _wrap_one(call: Arguments, outputs: Any, result: Any, spec: Any, at: int) -> Any:
    alias = outputs[at][1] if outputs else frozenset()
    for tensor, (_, argument) in zip(call.tensors, call.declared, strict=True):
        if argument.is_written and not argument.is_list and argument.alias & alias:
            return tensor
    return dispatcher().wrap(result, spec)


def _specs_of(results: Any, call: Arguments) -> Any:
    """Describe results that every rank has whole, from what the op returned."""
    if isinstance(results, torch.Tensor):
        meta = TensorMeta(results.shape, results.stride(), results.dtype)
        return DTensorSpec(call.mesh, (Replicate(),) * call.mesh.ndim, tensor_meta=meta)
    if isinstance(results, (list, tuple)):
        return tuple(_specs_of(result, call) for result in results)
    return None


def _local_shapes(plan: Plan) -> list[tuple[int, ...] | None]:
    """Give the shape of this rank's piece of each output."""
    specs = plan.outputs if isinstance(plan.outputs, (list, tuple)) else [plan.outputs]
    return [
        None
        if spec is None
        else piece(
            tuple(spec.shape),
            placements_from_torch(spec.placements),
            tuple(spec.mesh.shape),
            spec.mesh.get_coordinate(),
        )
        for spec in specs
    ]


def _nothing(plan: Plan) -> Any:
    """What a rank outside the mesh has for results."""

    def empty(spec: DTensorSpec | None) -> torch.Tensor | None:
        if spec is None or spec.tensor_meta is None:
            return None
        return torch.empty((0,) * bool(spec.shape), dtype=spec.tensor_meta.dtype)

    if isinstance(plan.outputs, Sequence):
        return tuple(empty(spec) for spec in plan.outputs)
    return empty(plan.outputs)
