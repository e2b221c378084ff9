"""One question to the expansion: rows of a rule, the inputs of a call, and a mesh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placement,
    Placements,
    Shard,
    ShardingPlaceholder,
    StridedShard,
)

Row: TypeAlias = tuple[Placement | None, ...]
"""Placements on one mesh dim: outputs first, then inputs. None: an output that is no tensor."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One tensor that goes into an op.

    Attributes:
        shape: global shape, for example `(M, K)`.
        sources: the placements that it may come with; one at dispatch, several when a tool
            asks for all strategies at once.
        pinned: why it cannot be moved, or None: an argument that the op mutates must keep
            its placement, and torch never moves keyword tensors.
    """

    shape: tuple[int, ...]
    sources: tuple[Placements, ...]
    pinned: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that decides an expansion.

    Attributes:
        mesh_shape: ranks per mesh dim, outermost first.
        rows: on one mesh dim, filled and without repeats, see `fill_rows`.
        num_outputs: how many of each row's entries are outputs.
        inputs: the tensors, in row order.
        ties: `output -> input` for outputs that are the very tensor that came in.
        allow_uneven_sharding: keep an unshardable input that stays as it is.
    """

    mesh_shape: tuple[int, ...]
    rows: tuple[Row, ...]
    num_outputs: int
    inputs: tuple[TensorInput, ...]
    ties: tuple[tuple[int, int], ...] = ()
    allow_uneven_sharding: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One valid choice for the whole mesh.

    Attributes:
        rows: index of the row that was taken on each mesh dim.
        outputs: placements of each output; None for an output that is no tensor.
        inputs: placements that each input must have.
        costs: per input, the microseconds to bring it there from each of its sources.
    """

    rows: tuple[int, ...]
    outputs: tuple[Placements | None, ...]
    inputs: tuple[Placements, ...]
    costs: tuple[tuple[float, ...], ...] = field(compare=False)

    @property
    def cost(self) -> float:
        """Microseconds of communication, summed over inputs and sources as torch sums them."""
        total = 0.0
        for row in self.costs:
            for cost in row:
                total += cost
        return total

    def __str__(self) -> str:
        def show(tensor: Placements | None) -> str:
            return "-" if tensor is None else f"({', '.join(map(str, tensor))})"

        outputs = ", ".join(map(show, self.outputs)) or "()"
        return f"{outputs} <- {', '.join(map(show, self.inputs))}  {self.cost:.2f} us"


def fill_rows(
    rows: Iterable[Sequence[Placement | ShardingPlaceholder | None]],
    num_outputs: int,
    inputs: Sequence[TensorInput],
    masked: Sequence[int] = (),
) -> tuple[Row, ...]:
    """Make a rule's rows concrete for the inputs of a call.

    The all-Replicate row comes first unless the rule has one. Every placeholder is filled
    with each kind of sharding that some input has: plain first, then strided by split
    factor. Rows that come out equal are kept once, where they first stood.

    Args:
        rows: what the rule returned, in our placements.
        num_outputs: how many entries of a row are outputs.
        inputs: the tensors of the call.
        masked: outputs that are no tensor in this call.

    >>> x = TensorInput((4,), ((Shard(0),),))
    >>> rows = fill_rows([[ShardingPlaceholder(0), ShardingPlaceholder(0)]], 1, [x])
    >>> [", ".join(map(str, row)) for row in rows]
    ['R, R', 'S(0), S(0)']
    """
    factors = _split_factors(inputs)
    width = num_outputs + len(inputs)
    replicate = tuple(None if at in masked else REPLICATE for at in range(width))
    filled: dict[Row, None] = {}
    given = [tuple(None if at in masked else p for at, p in enumerate(row)) for row in rows]
    if not any(all(p is None or p == REPLICATE for p in row) for row in given):
        filled[replicate] = None
    for row in given:
        if any(isinstance(p, ShardingPlaceholder) for p in row):
            for factor in factors:
                filled[tuple(_fill(p, factor) for p in row)] = None
        else:
            filled[tuple(_fill(p, None) for p in row)] = None
    return tuple(filled)


def _split_factors(inputs: Iterable[TensorInput]) -> list[int | None]:
    """List the kinds of sharding among the inputs: None for plain, else the split factor."""
    kinds: set[int | None] = set()
    for tensor in inputs:
        for placements in tensor.sources:
            for placement in placements:
                if isinstance(placement, Shard):
                    kinds.add(None)
                elif isinstance(placement, StridedShard):
                    kinds.add(placement.split_factor)
    return sorted(kinds, key=lambda factor: factor or 0)


def _fill(
    placement: Placement | ShardingPlaceholder | None, factor: int | None
) -> Placement | None:
    if not isinstance(placement, ShardingPlaceholder):
        return placement
    return Shard(placement.dim) if factor is None else StridedShard(placement.dim, factor)


def objection(
    problem: Problem, outputs: Sequence[Placements | None], inputs: Sequence[Placements]
) -> str | None:
    """Say why a combination of rows is not valid for a call, or None if it is.

    Args:
        problem: the call.
        outputs: placements of each output over the whole mesh.
        inputs: placements of each input over the whole mesh.
    """
    for position, placements in enumerate(outputs):
        if placements is not None and mixed_partial(placements):
            return f"output {position} would mix kinds of partial: {_show(placements)}"
    for position, (tensor, placements) in enumerate(zip(problem.inputs, inputs, strict=True)):
        if mixed_partial(placements):
            return f"input {position} would mix kinds of partial: {_show(placements)}"
        if tensor.pinned is not None and placements != tensor.sources[0]:
            return (
                f"input {position} is {tensor.pinned} and must stay {_show(tensor.sources[0])},"
                f" not become {_show(placements)}"
            )
    for output, tied in problem.ties:
        must = problem.inputs[tied].sources[0]
        if outputs[output] is not None and outputs[output] != must:
            return f"output {output} is input {tied} itself and must be {_show(must)}"
    for position, (tensor, placements) in enumerate(zip(problem.inputs, inputs, strict=True)):
        if problem.allow_uneven_sharding and placements == tensor.sources[0]:
            continue
        reason = unshardable(tensor.shape, placements, problem.mesh_shape)
        if reason is not None:
            return f"input {position}: {reason}"
    return None


def mixed_partial(placements: Placements) -> bool:
    """Say whether one tensor would be partial in two ways that do not commute.

    Sums and averages commute with each other, everything else only with itself.

    >>> mixed_partial((Partial("sum"), Partial("max"))), mixed_partial((Partial(), Partial("avg")))
    (True, False)
    """
    kinds = {p for p in placements if isinstance(p, Partial)}
    if len(kinds) < 2:
        return False
    return any(kind.native is not None or kind.reduce_op not in ("sum", "avg") for kind in kinds)


def unshardable(
    shape: Sequence[int], placements: Placements, mesh_shape: Sequence[int]
) -> str | None:
    """Say why a tensor cannot be cut so, or None: every rank must get at least one element.

    Args:
        shape: global shape.
        placements: one per mesh dim.
        mesh_shape: ranks per mesh dim; all that cut one tensor dim multiply.

    >>> unshardable((6, 3), (Shard(1), Shard(1)), (2, 2))
    'dim 1 cannot be sharded: 3 elements < 4 shards'
    """
    shards: dict[int, int] = {}
    for ranks, placement in zip(mesh_shape, placements, strict=True):
        if isinstance(placement, (Shard, StridedShard)):
            tensor_dim = placement.tensor_dim
            if tensor_dim >= len(shape):
                return f"there is no dim {tensor_dim} in shape {tuple(shape)}"
            shards[tensor_dim] = shards.get(tensor_dim, 1) * ranks
            pieces = shards[tensor_dim]
            if isinstance(placement, StridedShard):
                pieces *= placement.split_factor
            if shape[tensor_dim] < pieces:
                return (
                    f"dim {tensor_dim} cannot be sharded: {shape[tensor_dim]} elements"
                    f" < {pieces} shards"
                )
    return None


def _show(placements: Placements) -> str:
    return f"({', '.join(map(str, placements))})"
