"""Which combinations of rows are valid for a call, and why others are not."""

from __future__ import annotations

from collections.abc import Sequence

from dtensor_registry.placements import (
    Partial,
    Placement,
    Placements,
    Shard,
    StridedShard,
    cut_groups,
    show_placed,
)
from dtensor_registry.planner.problem import Problem, TensorInput


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
            return f"output {position} would mix kinds of partial: {show_placed(placements)}"
    for position, (tensor, placements) in enumerate(zip(problem.inputs, inputs, strict=True)):
        if mixed_partial(placements):
            return f"input {position} would mix kinds of partial: {show_placed(placements)}"
        if tensor.pinned is not None and placements != tensor.sources[0]:
            return (
                f"input {position} is {tensor.pinned} and must stay"
                f" {show_placed(tensor.sources[0])}, not become {show_placed(placements)}"
            )
    for output, tied in problem.ties:
        must = problem.inputs[tied].sources[0]
        if outputs[output] is not None and outputs[output] != must:
            return f"output {output} is input {tied} itself and must be {show_placed(must)}"
    for dim in problem.grouped:
        is_output = dim.position < problem.num_outputs
        at = dim.position if is_output else dim.position - problem.num_outputs
        grouped = outputs[at] if is_output else inputs[at]
        if grouped is None:
            continue
        reason = cut_groups(grouped, problem.mesh_shape, dim.tensor_dim, dim.groups)
        if reason is not None:
            return f"{'output' if is_output else 'input'} {at}: {reason}"
    for position, (tensor, placements) in enumerate(zip(problem.inputs, inputs, strict=True)):
        reason = _unsplittable(tensor, placements)
        if reason is not None:
            return f"input {position} {reason}"
        if problem.every_rank_has_some and 0 not in tensor.shape:
            last = tuple([ranks - 1 for ranks in problem.mesh_shape])
            if 0 in piece(tensor.shape, placements, problem.mesh_shape, last):
                return f"input {position}: the last rank would hold nothing of it"
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
    return len(kinds) > 1 and any(mixes_with_nothing(kind) for kind in kinds)


def mixes_with_nothing(kind: Partial) -> bool:
    """Say whether a partial stands on no tensor beside a partial of another kind.

    >>> mixes_with_nothing(Partial("avg")), mixes_with_nothing(Partial("max"))
    (False, True)
    """
    return kind.native is not None or kind.reduce_op not in ("sum", "avg")


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


def piece(
    shape: Sequence[int], placements: Placements, mesh_shape: Sequence[int], at: Sequence[int]
) -> tuple[int, ...]:
    """Give the shape of one rank's piece of a tensor.

    The last rank of every mesh dim has the smallest pieces. Strided shards are taken as plain.

    Args:
        shape: global shape.
        placements: one per mesh dim.
        mesh_shape: ranks per mesh dim.
        at: the rank's coordinate on each mesh dim.

    Source: `torch.chunk`, by which DTensor cuts.

    >>> piece((5, 4), (Shard(0),), (4,), (3,))
    (0, 4)
    """
    sizes = list(shape)
    for placement, ranks, index in zip(placements, mesh_shape, at, strict=True):
        if isinstance(placement, (Shard, StridedShard)):
            size = sizes[placement.tensor_dim]
            each = -(-size // ranks)
            sizes[placement.tensor_dim] = max(min(each, size - index * each), 0)
    return tuple(sizes)


def splits(source: Placement, target: Placement | None, divisible: bool) -> bool:
    """Say whether torch can make partial what is not, on one mesh dim.

    A whole tensor becomes partial without communication: each rank divides it by their
    number for a sum, and keeps it as it is for an average, a minimum or a maximum. For every
    other reduction torch raises; dividing integers would turn them into floats.

    Args:
        source: what the tensor has.
        target: what it shall have.
        divisible: whether its numbers can be divided.

    Source: `Partial._partition_value` in torch.distributed.tensor.placement_types.

    >>> splits(Shard(0), Partial("sum"), divisible=False), splits(Shard(0), Shard(1), True)
    (False, True)
    """
    if not isinstance(target, Partial) or target.native is not None or isinstance(source, Partial):
        return True
    if target.reduce_op == "sum":
        return divisible
    return target.reduce_op in ("avg", "min", "max")


def _unsplittable(tensor: TensorInput, placements: Placements) -> str | None:
    """Say why none of a tensor's sources can become partial as wanted, or None if one can."""
    reason = None
    for source in tensor.sources:
        for before, after in zip(source, placements, strict=True):
            if not splits(before, after, tensor.divisible):
                reason = (
                    "has integers, which cannot be split into a P(sum)"
                    if after == Partial("sum")
                    else f"cannot be split into a {after}:"
                    " torch splits into sum, avg, min and max only"
                )
                break
        else:
            return None
    return reason
