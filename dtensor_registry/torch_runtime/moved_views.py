"""Views of moved inputs: which tensors they are, and what they are views of.

A view op on a tensor dim that is cut (`x[0:2]` of `x` placed `S(0)`) redistributes its input
first, so its result shares memory with a copy, not with the input. torch lets a program write
into that result, and the input never hears of it. The host remembers both ends:

- the result's spec is a `MovedViewSpec`, which is unequal to the ordinary one. torch's C++
  caches decisions by spec, so what is decided for other tensors is not found for this one;
- the storage of the copy has an attribute, a `ViewMove`, which says what was copied from where.
  torch keeps the attributes of a storage as long as the storage.

A view of such a view shares its storage, and its spec is a `MovedViewSpec` too. Reading decides
by the ordinary spec and is cached as ever. `write_through` does the writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpInfo, OpSchema, OutputSharding
from torch.utils._pytree import tree_any, tree_leaves, tree_map

from dtensor_registry.torch_runtime.schema import facts

Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
"""Size, stride, offset and dtype of a tensor in its storage."""

_ATTRIBUTE = "_dtensor_registry_move"
"""Of a storage: the `ViewMove` by which it came about."""

_ARGUMENTS = "_dtensor_registry_arguments"
"""Of torch's description of a call of a view op: its arguments, as the program has them."""


class MovedViewSpec(DTensorSpec):
    """The spec of a view of a moved input; equal to its like, and to no ordinary spec.

    Attributes:
        plain: the ordinary spec.
    """

    plain: DTensorSpec

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, MovedViewSpec) and self._check_equals(other)

    def __hash__(self) -> int:
        return hash((MovedViewSpec, super().__hash__()))

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        # A file, or another process, has the values of a view and not what it is a view of.
        return DTensorSpec, tuple(getattr(self, field.name) for field in fields(DTensorSpec))


def marked(specs: Any) -> Any:
    """Make `MovedViewSpec`s of the specs in a tree."""

    def mark(spec: Any) -> Any:
        if not isinstance(spec, DTensorSpec) or isinstance(spec, MovedViewSpec):
            return spec
        copied = object.__new__(MovedViewSpec)
        copied.__dict__.update(spec.__dict__, plain=spec, _hash=None)
        return copied

    return tree_map(mark, specs)


def plain_spec(spec: Any) -> Any:
    """Give the ordinary spec of what may be a `MovedViewSpec`; anything else stays as it is."""
    return spec.plain if isinstance(spec, MovedViewSpec) else spec


def plain_schema(schema: OpSchema) -> OpSchema:
    """Describe a call with ordinary specs only."""
    if not tree_any(is_marked, (schema.args_schema, schema.kwargs_schema)):
        return schema
    args, kwargs = tree_map(plain_spec, (schema.args_schema, schema.kwargs_schema))
    return OpSchema(schema.op, args, kwargs, schema.schema_info)


def is_marked(value: Any) -> bool:
    """Say whether a spec, or a tensor, is that of a view of a moved input."""
    spec = value._spec if isinstance(value, DTensor) else value
    return isinstance(spec, MovedViewSpec)


@dataclass(eq=False, slots=True)
class ViewMove:
    """What a view op copied before it took the view.

    Attributes:
        op: the view op.
        source: this rank's part of what was copied.
        source_spec: where `source` is.
        copy_spec: where the copy is.
        geometry: of the copy, for each rank that this process has. The copy itself is not kept,
            since its storage keeps this value.
        version: of the tensor that was copied, as torch's autograd counts writes to it and to
            its views, at the time when the copy was equal to it; None if torch does not count.
        parent: the move by which `source` itself is a copy of a third tensor.
    """

    op: OpOverload
    source: torch.Tensor
    source_spec: DTensorSpec
    copy_spec: DTensorSpec
    geometry: tuple[Geometry, ...]
    version: int | None
    parent: ViewMove | None

    def copy_behind(self, view: torch.Tensor) -> torch.Tensor:
        """Find the copy of which a local tensor is a view."""
        parts = [
            _restored(part, where)
            for part, where in zip(parts_of(view), self.geometry, strict=True)
        ]
        ranks = getattr(view, "_local_tensors", None)
        if ranks is None:
            return parts[0]
        simulated: Any = type(view)
        restored: torch.Tensor = simulated(dict(zip(ranks, parts, strict=True)))
        return restored


def parts_of(local: torch.Tensor) -> list[torch.Tensor]:
    """List the tensors with a storage in a local tensor: one, or one for each simulated rank."""
    ranks: dict[int, torch.Tensor] | None = getattr(local, "_local_tensors", None)
    return [local] if ranks is None else list(ranks.values())


def _restored(part: torch.Tensor, where: Geometry) -> torch.Tensor:
    size, stride, offset, dtype = where
    if part.dtype == dtype:
        return torch.as_strided(part, size, stride, offset)
    # The view has other elements than the copy, as that of `view_as_real` has.
    empty = torch.empty(0, dtype=dtype, device=part.device)
    return empty.set_(part.untyped_storage(), offset, size, stride)


def move_behind(view: torch.Tensor) -> ViewMove | None:
    """Find what was copied for a local tensor that is a view of a moved input."""
    return getattr(parts_of(view)[0].untyped_storage(), _ATTRIBUTE, None)


def version_of(tensor: torch.Tensor) -> int | None:
    """How often a tensor, or what it shares memory with, was written to; alike on all ranks."""
    return None if tensor.is_inference() else tensor._version


def note_move(
    op: OpOverload,
    tensor: torch.Tensor,
    source: torch.Tensor,
    source_spec: DTensorSpec,
    copied: torch.Tensor,
    copy_spec: DTensorSpec,
) -> None:
    """Remember that a view op copied its input.

    Args:
        op: the view op.
        tensor: its input, as the program has it.
        source: this rank's part of it.
        source_spec: where that is.
        copied: this rank's part of the copy.
        copy_spec: where the copy is.
    """
    parts = parts_of(copied)
    geometry = tuple(
        (tuple(part.size()), part.stride(), int(part.storage_offset()), part.dtype)
        for part in parts
    )
    move = ViewMove(
        op,
        source,
        source_spec,
        copy_spec,
        geometry,
        version_of(tensor),
        move_behind(source),
    )
    setattr(parts[0].untyped_storage(), _ATTRIBUTE, move)


@cache
def viewed(op: OpOverload) -> tuple[int, ...]:
    """List the arguments of which an output of the op is a view."""
    return tuple(at for at, a in enumerate(facts(op).parameters) if a.alias and not a.is_written)


def mark_answer(schema: OpSchema, answer: OutputSharding) -> OutputSharding:
    """Mark the outputs of a decision that are views of a moved input.

    Args:
        schema: the call, its specs as the program's tensors have them.
        answer: what torch's propagator says of the call with ordinary specs.
    """
    if not facts(schema.op).view:
        return answer
    wanted = answer.redistribute_schema if answer.needs_redistribute else None
    for at in viewed(schema.op):
        spec = schema.args_schema[at] if at < len(schema.args_schema) else None
        moved = wanted is not None and wanted.args_schema[at] != plain_spec(spec)
        if isinstance(spec, DTensorSpec) and (moved or is_marked(spec)):
            return replace(answer, output_spec=marked(answer.output_spec))
    return answer


def plain_info(info: OpInfo, op: OpOverload, args: tuple[Any, ...]) -> OpInfo:
    """Let torch compare the specs of a call with those of a decision, which are ordinary."""
    info.flat_args_schema = [plain_spec(spec) for spec in info.flat_args_schema]
    if viewed(op):
        setattr(info, _ARGUMENTS, args)
    return info


def note_moves(info: OpInfo, before: Sequence[Any], wanted: OpSchema) -> None:
    """Remember which inputs of a view op have been moved.

    Args:
        info: the call, read by `plain_info`, its inputs moved.
        before: this rank's parts of its arguments before that.
        wanted: the call as it is decided.
    """
    args = getattr(info, _ARGUMENTS, ())
    for at in viewed(wanted.op) if args else ():
        # Lists among the arguments are flattened.
        leaf = at if info.args_tree_spec is None else len(tree_leaves(args[:at]))
        if at < len(args) and info.local_args[leaf] is not before[leaf]:
            source_spec: Any = info.flat_args_schema[leaf]
            copy_spec: Any = wanted.args_schema[at]
            copied: Any = info.local_args[leaf]
            note_move(wanted.op, args[at], before[leaf], source_spec, copied, copy_spec)
