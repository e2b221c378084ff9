"""Tensors whose dim is cut over several mesh dims in another order than from the outermost in.

`DTensorSpec.shard_order` tells them apart; their placements are the same as those of a tensor in
the default order, though each rank holds another piece. torch's own rules, and most of its
dispatch, see placements only, and take one for the other. So no decision is made on such a
tensor: what is only read is brought to the default order first, and what is written to, or is to
have a view, is given to the op in strided placements, which say the same of the same local data.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._pytree import tree_map

from dtensor_registry.errors import ShardOrderError
from dtensor_registry.rules.signature import Parameter
from dtensor_registry.torch_runtime.arguments import Arguments, read_arguments
from dtensor_registry.torch_runtime.schema import facts


def has_own_order(spec: DTensorSpec) -> bool:
    """Say whether a tensor is cut in another order than the default one.

    A spec with strided placements has no order of its own: they tell it.
    """
    order = spec.shard_order
    return order is not None and not DTensorSpec.is_default_device_order(order)


def is_pieces_alone(op: OpOverload, specs: Sequence[DTensorSpec]) -> bool:
    """Say whether a call only writes to tensors that are all in one place.

    Then nothing moves and no new placement is made, so that their order plays no part.
    """
    known = facts(op)
    written = [argument.alias for argument in known.parameters if argument.is_written]
    new = [tensor and not any(alias & w for w in written) for tensor, alias in known.outputs]
    first = specs[0]
    return not any(new) and all(
        spec.placements == first.placements and spec.shard_order == first.shard_order
        for spec in specs
    )


def run_in_default_order(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call in which some tensor has an order of its own.

    Raises:
        ShardOrderError: if such a tensor is written to, or is to have a view, and its pieces
            are uneven: then strided placements do not say the same.
    """
    call = read_arguments(op, args, kwargs, None)
    own = [at for at, spec in enumerate(call.specs) if has_own_order(spec)]
    shared = any(_shares_memory(call.declared[at][1]) for at in own)
    if shared:
        _refuse_uneven(call, own)
    even = all(_is_even(call.specs[at]) for at in own)
    strided = shared or (
        even
        and (
            _reduces_ordered_dims(op, args, [call.specs[at] for at in own])
            or any(isinstance(p, _StridedShard) for spec in call.specs for p in spec.placements)
        )
    )
    way = _strided if strided else _in_default_order
    if even and str(op).split(".")[1].endswith("_like"):
        way = _as_if_ordered
    given: dict[int, DTensor] = {}
    for at in own:
        tensor, spec = call.tensors[at], call.specs[at]
        if id(tensor) not in given:
            given[id(tensor)] = way(tensor, spec)
    new_args, new_kwargs = call.replaced(given.get(id(t), t) for t in call.tensors)
    results = op(*new_args, **new_kwargs)
    originals = {id(given[id(t)]): t for t in call.tensors if id(t) in given}
    return tree_map(lambda value: originals.get(id(value), value), results)


def refuse_own_order(op: OpOverload, specs: Sequence[DTensorSpec]) -> None:
    """Refuse what torch would decide as if the tensors were in the default order.

    Raises:
        ShardOrderError: if a tensor is not.
    """
    for at, spec in enumerate(specs):
        if has_own_order(spec) and not is_pieces_alone(op, specs):
            raise _error(op, f"tensor {at}", spec, "torch runs this op by a handler of its own")


def _reduces_ordered_dims(
    op: OpOverload, args: tuple[Any, ...], specs: Sequence[DTensorSpec]
) -> bool:
    """Say whether a call reduces every dim that has an order of its own, which then is nothing."""
    if torch.Tag.reduction not in op.tags:
        return False
    given = facts(op).signature.argument("dim", args, {})
    dims = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    return not dims or all(
        entry.tensor_dim in [dim % len(spec.shape) for dim in dims]
        for spec in specs
        for entry in spec.shard_order
        if len(entry.mesh_dims) > 1
    )


def _shares_memory(argument: Parameter) -> bool:
    """Say whether an op writes to an argument or returns a view of it."""
    return argument.is_written or bool(argument.alias)


def _is_even(spec: DTensorSpec) -> bool:
    """Say whether every rank holds as much; else strided placements may mean other pieces."""
    return not any(
        spec.shape[entry.tensor_dim] % prod(map(spec.mesh.size, entry.mesh_dims))
        for entry in spec.shard_order
    )


def _refuse_uneven(call: Arguments, own: Sequence[int]) -> None:
    for at in own:
        if not _is_even(call.specs[at]):
            problem = "Its pieces are uneven, and the op writes to it or returns a view"
            raise _error(call.schema.op, repr(call.declared[at][0]), call.specs[at], problem)


def _strided(tensor: Any, spec: DTensorSpec) -> DTensor:
    """Give a tensor the strided placements that its order means; its local data is shared."""
    placements = DTensorSpec._convert_shard_order_to_StridedShard(
        spec.shard_order, spec.placements, spec.mesh
    )
    wanted = DTensorSpec(spec.mesh, placements, tensor_meta=spec.tensor_meta)
    return _dtensor(tensor._local_tensor, wanted)


def _as_if_ordered(tensor: Any, spec: DTensorSpec) -> DTensor:
    """Give a tensor of which only shape and placements count; its pieces are of one size."""
    ordered = DTensorSpec(spec.mesh, spec.placements, tensor_meta=spec.tensor_meta)
    return _dtensor(tensor._local_tensor, ordered)


def _in_default_order(tensor: Any, spec: DTensorSpec) -> DTensor:
    """Gather a tensor on as few mesh dims as leave the others in the default order."""
    target = DTensorSpec(spec.mesh, _ordered_part(spec), tensor_meta=spec.tensor_meta)
    return _dtensor(redistribute_local_tensor(tensor._local_tensor, spec, target), target)


def _ordered_part(spec: DTensorSpec) -> tuple[Any, ...]:
    """Replicate the mesh dims that cut a tensor dim after one further in has cut it."""
    placements = list(spec.placements)
    for entry in spec.shard_order:
        furthest = -1
        for mesh_dim in entry.mesh_dims:
            if mesh_dim < furthest:
                placements[mesh_dim] = Replicate()
            furthest = max(furthest, mesh_dim)
    return tuple(placements)


def _dtensor(local: Any, spec: DTensorSpec) -> DTensor:
    return DTensor(local, spec, requires_grad=False)  # type: ignore[no-untyped-call]


def _error(op: OpOverload, argument: str, spec: DTensorSpec, problem: str) -> ShardOrderError:
    shown = DTensorSpec.format_shard_order_str(spec.placements, spec.shard_order)
    return ShardOrderError(
        str(op), argument, f"{tuple(spec.shape)} {shown}", problem, str(_ordered_part(spec))
    )
