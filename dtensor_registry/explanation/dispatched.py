"""What dispatch does with a call: run it on tensors without data, and ask what was decided."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._pytree import tree_leaves

from dtensor_registry.errors import RegistryError
from dtensor_registry.explanation.query import AskedCall, told_by
from dtensor_registry.explanation.values import Decider
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.dispatch_hooks import specs_in
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER, has_rule
from dtensor_registry.torch_patch.watch import OpRun, watching
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.decide import filters_choices, refusal
from dtensor_registry.torch_runtime.decomposition import is_composite
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator
from dtensor_registry.torch_runtime.execute import Executor, waits_for_shapes
from dtensor_registry.torch_runtime.handlers import HandlerOrRule
from dtensor_registry.torch_runtime.installed_rule import InstalledRule, TorchRule, torch_rule


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What became of a call.

    Attributes:
        schema: the call as torch's propagator writes it.
        decider: what kind of answer it got.
        rule: what gave the rows, if rows decided.
        inputs: where each tensor goes; None if torch does not say.
        outputs: what each output is, None for one that is no tensor; None if nothing came out.
        ran: the ops that ran, and what they communicated.
        executed: whether the host runs the op itself.
        reads: whether it came to where it needs data, and went no further.
        error: what was raised, None if the call went through.
        warnings: what was said on the way.
        refusal: why the op's rule has no way to run the call, where torch's decomposition has.
    """

    schema: OpSchema
    decider: Decider
    rule: InstalledRule | TorchRule | None
    inputs: tuple[DTensorSpec, ...] | None
    outputs: tuple[DTensorSpec | None, ...] | None
    ran: tuple[OpRun, ...]
    executed: bool
    reads: bool
    error: Exception | None
    warnings: tuple[str, ...]
    refusal: str | None = None


def dispatch(call: AskedCall) -> Dispatched:
    """Run a call as DTensor runs it."""
    ran: list[OpRun] = []
    result: Any = None
    error: Exception | None = None
    with (
        warnings.catch_warnings(record=True) as said,
        watching(ran.append),
        torch.no_grad(),
        call.mode,
    ):
        warnings.simplefilter("always")
        try:
            result = call.op(*call.args, **call.kwargs)
        except Exception as raised:  # whatever it is, it is the answer that a user gets
            error = raised
    executor = dispatcher()._custom_op_handlers.get(call.op)
    schema = _schema(call)
    if isinstance(executor, HandlerOrRule):
        stays = error is not None or executor.stays(schema)
        executor = None if stays else executor.executor
    executed = isinstance(executor, Executor)
    reads = error is not None and waits_for_shapes(error) and _named(error) is None
    if reads:
        error = None  # it came to where it needs data: there is no more to see
    decider, rule = _decider(call, ran, error, executed)
    refused = _refusal(rule, schema, executed) if error is None and not reads else None
    if refused is not None:
        decider = "decomposition"
    inputs = outputs = None
    if error is None:
        outputs = tuple(_outputs(result)) if result is not None else None
        inputs = _inputs(schema, executor if executed else None, decider)
    told = tuple(dict.fromkeys(str(w.message) for w in said))
    return Dispatched(
        schema, decider, rule, inputs, outputs, tuple(ran), executed, reads, error, told, refused
    )


def _refusal(
    rule: InstalledRule | TorchRule | None, schema: OpSchema, executed: bool
) -> str | None:
    """Say why a rule by itself has no way to run a call that went through, in one line."""
    if not isinstance(rule, InstalledRule) or not rule.decomposes:
        return None
    meta = propagator()._propagate_tensor_meta_non_cached(schema)
    refused = refusal(rule, propagator()._wrap_with_op_strategy(schema), meta, executed)
    return None if refused is None else str(refused).partition("\n")[0]


def reason_of(error: Exception) -> str:
    """Say what an error says, without what torch wraps around one of ours."""
    named = _named(error)
    return told_by(error) if named is None else str(named)


def _named(error: BaseException | None) -> RegistryError | None:
    while error is not None:
        if isinstance(error, RegistryError):
            return error
        error = error.__cause__
    return None


def _schema(call: AskedCall) -> OpSchema:
    prop = propagator()
    info = prop.op_to_schema_info.get(call.op)
    info = info or prop.op_to_schema_info_for_single_dim_strategy.get(call.op)
    return read_arguments(call.op, call.args, call.kwargs, info).schema


def _decider(
    call: AskedCall, ran: Sequence[OpRun], error: Exception | None, executed: bool
) -> tuple[Decider, InstalledRule | TorchRule | None]:
    op = call.op
    if LEDGER.original(HANDLERS, op) is not None and not executed:
        return "handler", None
    if is_composite(op) and not any(row.op == str(op) for row in ran):
        return "composite", None
    found = LOAN.find(op)
    if found is not None:
        rule = getattr(found[1].rule, "func", None)
        if isinstance(rule, InstalledRule):
            return ("rule" if rule.fallback is None else "fallback"), rule
        if not isinstance(rule, CorrectedRule) and not isinstance(found[1].rule, AmendedTorch):
            return "rule", None  # a function for the whole mesh
    info = propagator().op_single_dim_strategy_funcs.get(op)
    adopting = any(layer.adopts for layer in LOAN.uncovered)
    if info is not None and adopting and not filters_choices(info):
        return "torch rule", torch_rule(info.func, info.allow_uneven_sharding)
    if has_rule(op):
        return "torch", None
    return ("decomposition" if error is None else "nobody"), None


def _inputs(
    schema: OpSchema, executor: Executor | None, decider: Decider
) -> tuple[DTensorSpec, ...] | None:
    if executor is not None:
        return executor.make_plan(schema).inputs
    if decider in ("handler", "composite"):
        return None
    answer = propagator().propagate_op_sharding_non_cached(schema)
    return specs_in(answer.redistribute_schema if answer.needs_redistribute else schema)


def _outputs(result: Any) -> Iterator[DTensorSpec | None]:
    for leaf in tree_leaves(result, is_leaf=lambda value: value is None):
        if leaf is None:
            yield None
        elif isinstance(leaf, DTensor):
            yield leaf._spec
