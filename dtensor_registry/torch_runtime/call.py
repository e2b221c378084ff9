"""One call as torch's propagator describes it, read as a problem of placements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, TupleStrategy

from dtensor_registry.placements import Placement, Shard, ShardingPlaceholder, StridedShard
from dtensor_registry.planner import Problem, Row, TensorInput
from dtensor_registry.rules.signature import Parameter
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.move_prices import (
    is_divisible,
    nbytes_of,
    topology_of,
    torch_plans_otherwise,
)
from dtensor_registry.torch_runtime.row_cache import filled_rows
from dtensor_registry.torch_runtime.schema import OpFacts, facts, input_names

Specs = tuple[tuple[DTensorSpec, ...], ...]
"""For each tensor input in row order, the specs that it may come with."""


class RowSource(Protocol):
    """What gives the rows of an op: a plugin's rule, or torch's own."""

    @property
    def allow_uneven_sharding(self) -> bool:
        """Whether an unshardable input may stay as it is."""

    @property
    def allow_empty_pieces(self) -> bool:
        """Whether some ranks may hold nothing of an input."""

    @property
    def fallback(self) -> str | None:
        """The name of the fallback that this is, or None."""

    def rows(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Placement | ShardingPlaceholder | None, ...]]:
        """Ask for the rows of one call."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, read for the expansion.

    Attributes:
        op: the op.
        mesh: the mesh of its inputs.
        specs: its tensor inputs.
        metas: metadata of each output; None for one that is no tensor in this call.
        listed: whether the outputs are one list of tensors.
        problem: the same call in placements.
    """

    op: OpOverload
    mesh: DeviceMesh
    specs: Specs
    metas: tuple[TensorMeta | None, ...]
    listed: bool
    problem: Problem


def tensor_specs(op_schema: OpSchema) -> Specs:
    """List the tensor inputs of a call whose tensors are given as strategies."""

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


def is_concrete(specs: Specs) -> bool:
    """Say whether the host can decide a call: every size is a number, and there is one mesh."""
    mesh = specs[0][0].mesh
    return all(
        spec.mesh == mesh and not any(isinstance(size, torch.SymInt) for size in spec.shape)
        for sources in specs
        for spec in sources
    )


def read_call(
    rule: RowSource,
    op_schema: OpSchema,
    specs: Specs,
    output_meta: Any,
    executing: bool = False,
) -> Call | str:
    """Read a call and ask the rule for its rows.

    Args:
        rule: what gives the rows.
        op_schema: the call, its tensors given as strategies.
        specs: `tensor_specs(op_schema)`.
        output_meta: as torch's propagator keeps it: one, several, or None.
        executing: whether the host will run the op itself. Then keyword tensors can move, and
            what a fallback's op writes to is written back to where it was.

    Returns:
        The call, or what about the rows does not fit it.

    Raises:
        RuleError: if a plugin's rule fails.
    """
    op = op_schema.op
    known = facts(op)
    mesh = specs[0][0].mesh
    declared = input_names(
        op, op_schema.args_schema, op_schema.kwargs_schema, lambda v: isinstance(v, OpStrategy)
    )
    inputs = tuple(
        TensorInput(
            tuple(sources[0].shape),
            tuple(placements_from_torch(spec.placements) for spec in sources),
            _pinned(name, argument, known, rule, executing),
            nbytes=nbytes_of(sources[0]),
            divisible=is_divisible(sources[0]),
            priced_by_torch=any(torch_plans_otherwise(spec) for spec in sources),
        )
        for sources, (name, argument) in zip(specs, declared, strict=True)
    )
    metas = _output_metas(known, output_meta)
    listed = known.list_output and not isinstance(output_meta, TensorMeta)
    masked = () if listed else [i for i, meta in enumerate(metas) if meta is None]
    rows, num_outputs, grouped = filled_rows(rule, op_schema, inputs, known.tensor_outputs, masked)
    if num_outputs != len(metas) and not (listed and num_outputs == 1):
        return f"rows have {num_outputs} outputs, this call gives {len(metas)} tensors"
    misplaced = _misplaced(rows, metas[:num_outputs])
    if misplaced is not None:
        return misplaced
    problem = Problem(
        topology_of(mesh),
        rows,
        num_outputs,
        inputs,
        () if executing and rule.fallback is not None else ties(known, declared),
        rule.allow_uneven_sharding,
        every_rank_has_some=not rule.allow_empty_pieces,
        grouped=grouped,
    )
    return Call(op, mesh, specs, metas, listed, problem)


def _misplaced(rows: Sequence[Row], metas: Sequence[TensorMeta | None]) -> str | None:
    """Say which output a row leaves without a placement, or shards on a dim that is not there."""
    for output, meta in enumerate(metas):
        if meta is None:
            continue
        dims = len(meta.shape)
        for row in rows:
            entry = row[output]
            if entry is None:
                return (
                    f"output {output} is a tensor in this call, but a row has no placement for it"
                )
            if isinstance(entry, (Shard, StridedShard)) and entry.tensor_dim >= dims:
                return f"output {output} has {entry} in a row, but is a {dims}-dim tensor"
    return None


def ties(known: OpFacts, declared: Sequence[tuple[str, Parameter]]) -> tuple[tuple[int, int], ...]:
    """Pair each output that is a mutated argument itself with that input."""
    outputs = [alias for tensor, alias in known.outputs if tensor]
    return tuple(
        (output, at)
        for output, alias in enumerate(outputs)
        for at, (_, argument) in enumerate(declared)
        if argument.is_written and not argument.is_list and argument.alias & alias
    )


def _pinned(
    name: str, argument: Parameter, known: OpFacts, rule: RowSource, executing: bool
) -> str | None:
    if argument.is_written and executing and rule.fallback is not None:
        return None
    if argument.is_written:
        return f"{name!r}, which the op writes to,"
    if argument.is_keyword and not executing:
        return f"keyword argument {name!r}, which torch never moves,"
    if rule.fallback is not None and known.view and argument.alias:
        return f"{name!r}, of which the output is a view,"
    return None


def _output_metas(known: OpFacts, output_meta: Any) -> tuple[TensorMeta | None, ...]:
    """Give every tensor output its metadata, whatever torch keeps them in."""
    if isinstance(output_meta, TensorMeta) or output_meta is None:
        return (output_meta,) * known.tensor_outputs
    if known.list_output:
        return tuple(output_meta)
    return tuple(
        meta for meta, (tensor, _) in zip(output_meta, known.outputs, strict=True) if tensor
    )
