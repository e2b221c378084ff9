"""The host's expansion, in the place where torch calls its own.

torch's propagator looks an op's single-dim rule up and hands it to one module global. While
the host is installed that global is `expand`: rules of plugins are decided here, everything
else goes on to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, TupleStrategy
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry._torch.convert import placements_from_torch, placements_to_torch
from dtensor_registry._torch.prices import pricer
from dtensor_registry._torch.rule import InstalledRule
from dtensor_registry._torch.schema import OpFacts, facts, input_names
from dtensor_registry.errors import FallbackRefusedError, NoValidRowError, RuleError
from dtensor_registry.expansion import (
    Candidate,
    Problem,
    TensorInput,
    candidates,
    cheapest,
    fill_rows,
    objections,
)

Expanded = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]

EXPAND = "_expand_single_dim_strategy_to_mesh"
"""The module global of `_sharding_prop` that torch calls to expand a rule."""

TORCH_EXPAND: Callable[..., Expanded] = getattr(_sharding_prop, EXPAND)
"""torch's own expansion, to hand over to."""

_PER_ELEMENT = ("aten._foreach_", "aten._amp_foreach_", "aten._fused_")
"""Ops that torch expands once per list element."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as torch's propagator describes it, read for the expansion.

    Attributes:
        op: the op.
        mesh: the mesh of its inputs.
        specs: for each tensor input in row order, the specs that it may come with.
        metas: metadata of each output; None for one that is no tensor.
        problem: the same call as a problem of placements.
    """

    op: OpOverload
    mesh: DeviceMesh
    specs: tuple[tuple[DTensorSpec, ...], ...]
    metas: tuple[TensorMeta | None, ...]
    problem: Problem


def expand(
    mesh: DeviceMesh, op_schema: OpSchema, strategy_info: _SingleDimStrategyInfo, output_meta: Any
) -> Expanded:
    """Stand in for torch's `_expand_single_dim_strategy_to_mesh`.

    Returns:
        A function `(op, args_meta, kwargs_meta) -> OpStrategy`: with the one cheapest choice
        when every input has one source, with all valid ones otherwise.
    """
    rule = strategy_info.func
    specs = tensor_specs(op_schema)
    if not isinstance(rule, InstalledRule) or not _concrete(op_schema, mesh, specs):
        return TORCH_EXPAND(mesh, op_schema, strategy_info, output_meta)

    def expanded(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpStrategy:
        return decide(read_call(rule, op_schema, mesh, specs, output_meta), rule)

    return expanded


def read_call(
    rule: InstalledRule,
    op_schema: OpSchema,
    mesh: DeviceMesh,
    specs: tuple[tuple[DTensorSpec, ...], ...],
    output_meta: Any,
) -> Call:
    """Read a call and ask the rule for its rows.

    Raises:
        RuleError: if the rule fails, or its rows do not fit the op.
    """
    op = op_schema.op
    known = facts(op)
    declared = input_names(
        op, op_schema.args_schema, op_schema.kwargs_schema, lambda v: isinstance(v, OpStrategy)
    )
    inputs = tuple(
        TensorInput(
            tuple(sources[0].shape),
            tuple(placements_from_torch(spec.placements) for spec in sources),
            _pinned(name, argument, known, rule),
        )
        for sources, (name, argument) in zip(specs, declared, strict=True)
    )
    metas = _output_metas(known, output_meta)
    rows = rule.rows(op, op_schema.args_meta, op_schema.kwargs_meta)
    num_outputs = len(rows[0]) - len(inputs) if rows else known.tensor_outputs
    if known.list_output and num_outputs not in (1, len(metas)):
        problem = f"it has {num_outputs} outputs per row, but this call gives {len(metas)} tensors"
        raise RuleError(str(op), rule.origin.plugin, str(rule.origin), problem)
    masked = () if known.list_output else [i for i, m in enumerate(metas) if m is None]
    ties = tuple(
        (output, at)
        for output, alias in enumerate(alias for tensor, alias in known.outputs if tensor)
        for at, (_, argument) in enumerate(declared)
        if argument.mutated and not argument.many and argument.alias & alias
    )
    problem_of_call = Problem(
        tuple(mesh.shape),
        fill_rows(rows, num_outputs, inputs, masked),
        num_outputs,
        inputs,
        ties,
        rule.allow_uneven_sharding,
    )
    return Call(op, mesh, specs, metas, problem_of_call)


def decide(call: Call, rule: InstalledRule) -> OpStrategy:
    """Choose the placements of a call.

    Raises:
        NoValidRowError: if no combination of rows is valid.
        FallbackRefusedError: likewise, for a fallback.
    """
    price = pricer(call.mesh, call.specs)
    if any(len(sources) > 1 for sources in call.specs):
        valid = candidates(call.problem, price)
    else:
        best = cheapest(call.problem, price)
        valid = () if best is None else (best,)
    if not valid:
        raise _no_valid_row(call, rule)
    return OpStrategy([_op_spec(call, candidate) for candidate in valid])


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
    outputs = [
        None if placements is None else (call.mesh, placements_to_torch(placements))
        for placements in candidate.outputs
    ]
    known = facts(call.op)
    if known.list_output and len(outputs) == 1:
        outputs = outputs * len(call.metas)
    specs = iter(
        None if given is None or meta is None else DTensorSpec(*given, tensor_meta=meta)
        for given, meta in zip(outputs, call.metas, strict=True)
    )
    output_specs: Any
    if known.list_output:
        output_specs = tuple(specs)
    elif len(known.outputs) > 1:
        # torch wants one entry per return, None for one that is no tensor.
        output_specs = tuple(next(specs) if tensor else None for tensor, _ in known.outputs)
    else:
        output_specs = next(specs, None)
    return OpSpec(output_specs, inputs, [list(costs) for costs in candidate.costs])


def tensor_specs(op_schema: OpSchema) -> tuple[tuple[DTensorSpec, ...], ...]:
    """List the tensor inputs in row order, each with the specs that it may come with."""

    def walk(values: Sequence[Any]) -> list[tuple[DTensorSpec, ...]]:
        found: list[tuple[DTensorSpec, ...]] = []
        for value in values:
            if isinstance(value, OpStrategy):
                found.append(tuple(strategy.output_spec for strategy in value.strategies))
            elif isinstance(value, TupleStrategy):
                found += walk(value.children)
            elif isinstance(value, (list, tuple)):
                found += walk(value)
        return found

    return (*walk(op_schema.args_schema), *walk(list(op_schema.kwargs_schema.values())))


def _concrete(
    op_schema: OpSchema, mesh: DeviceMesh, specs: Sequence[Sequence[DTensorSpec]]
) -> bool:
    """Say whether the host can decide a call: plain sizes, one mesh, not element by element."""
    if str(op_schema.op).startswith(_PER_ELEMENT):
        return False
    for sources in specs:
        for spec in sources:
            if spec.mesh != mesh or any(isinstance(size, torch.SymInt) for size in spec.shape):
                return False
    return True


def _pinned(name: str, argument: Any, known: OpFacts, rule: InstalledRule) -> str | None:
    if argument.mutated:
        return f"{name!r}, which the op writes to,"
    if argument.keyword:
        return f"keyword argument {name!r}, which torch never moves,"
    if rule.fallback is not None and known.view and argument.alias:
        return f"{name!r}, of which the output is a view,"
    return None


def _output_metas(known: OpFacts, output_meta: Any) -> tuple[TensorMeta | None, ...]:
    """Give every tensor output its metadata, whatever shape torch keeps them in."""
    if isinstance(output_meta, TensorMeta) or output_meta is None:
        return (output_meta,) * known.tensor_outputs
    if known.list_output:
        return tuple(output_meta)
    return tuple(
        meta for meta, (tensor, _) in zip(output_meta, known.outputs, strict=True) if tensor
    )


def _no_valid_row(call: Call, rule: InstalledRule) -> Exception:
    reasons = list(dict.fromkeys(objections(call.problem)))
    op = str(call.op)
    if rule.fallback is not None:
        return FallbackRefusedError(op, [(rule.fallback, reasons[0])])
    inputs = ", ".join(
        f"{tensor.shape}@({', '.join(map(str, tensor.sources[0]))})"
        for tensor in call.problem.inputs
    )
    shown = reasons[:8] + ([f"... {len(reasons) - 8} more"] if len(reasons) > 8 else [])
    mesh = "x".join(map(str, call.problem.mesh_shape))
    return NoValidRowError(op, rule.origin.plugin, str(rule.origin), inputs, mesh, shown)
