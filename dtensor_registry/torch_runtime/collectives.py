"""Which ops are collectives, and what a rank puts into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_FUNCTIONAL = frozenset({"_c10d_functional", "_dtensor"})
"""Namespaces of collectives that return their result; DTensor uses these."""

_WRITING = "c10d"
"""Namespace of collectives that write into an argument: `distribute_tensor`, `dist.all_reduce`."""

_NAMES = {
    "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_to_all_single": "all_to_all",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "broadcast": "broadcast",
    "gather": "gather",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "scatter": "scatter",
    "shard_dim_alltoall": "all_to_all",
}
"""What people call a collective, by its op's name without the underscore of a writing one."""

_OUTPUT_FIRST = frozenset(
    {"_allgather_base", "_reduce_scatter_base", "allgather", "alltoall", "alltoall_base"}
    | {"gather", "reduce_scatter", "scatter"}
)
"""Of those that write: the ones whose first argument is what they write to, not what they send."""


def collective(func: Any) -> str | None:
    """Name a collective as people call it, or None for any other op.

    >>> collective(torch.ops.aten.add.Tensor) is None
    True
    """
    if func.namespace not in _FUNCTIONAL and func.namespace != _WRITING:
        return None
    return _NAMES.get(_plain(func))


def bytes_put_in(func: Any, args: Sequence[Any]) -> int:
    """Count the bytes that this rank puts into a collective."""
    sent = args
    if func.namespace == _WRITING:
        sent = args[1:2] if _plain(func) in _OUTPUT_FIRST else args[:1]
    return sum(
        leaf.numel() * leaf.element_size()
        for leaf in tree_leaves(sent)
        if isinstance(leaf, torch.Tensor)
    )


def _plain(func: Any) -> str:
    name: str = func._schema.name.rpartition("::")[2]
    return name.removesuffix("_")
