"""Which parameter is cut where: the only part of the job that speaks of placements.

The last mesh dim is the tensor-parallel one, all before it share out the batch. Attention
and feed-forward are cut as in Megatron: the projections in by their output features, so that
a rank has whole heads and whole hidden columns, and the projections out by their input
features, which leaves a sum over the ranks.

Source: M. Shoeybi et al., "Megatron-LM" (2019), arXiv:1909.08053, section 3.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)

COLUMN_WISE = Shard(0)  # an nn.Linear keeps its weight as (out, in)
ROW_WISE = Shard(1)
VOCABULARY = Shard(0)  # an embedding's weight is (V, D)

TENSOR_PARALLEL: dict[str, Placement] = {
    "down": ROW_WISE,
    "embedding": VOCABULARY,
    "gate": COLUMN_WISE,
    "head": COLUMN_WISE,
    "key": COLUMN_WISE,
    "output": ROW_WISE,
    "query": COLUMN_WISE,
    "up": COLUMN_WISE,
    "value": COLUMN_WISE,
}
"""Placement over the last mesh dim of the weight of each module; others are replicated."""

SUMMED_UP = frozenset({"down", "embedding", "output"})
"""Modules whose output is a sum over the tensor-parallel ranks and is reduced at once."""


def shard_model(model: nn.Module, mesh: DeviceMesh) -> None:
    """Turn all parameters and buffers into DTensors, in place.

    Without the hooks on the modules that end a block, the choice would be torch's: with
    activations larger than weights, it gathers the weights and cuts the batch once more.
    """
    batch_dims = mesh.ndim - 1

    def partition(name: str, module: nn.Module, _mesh: DeviceMesh) -> None:
        leaf = name.rpartition(".")[2]
        if leaf in TENSOR_PARALLEL:
            whole = module.get_parameter("weight").detach()
            placements = (*[Replicate()] * batch_dims, TENSOR_PARALLEL[leaf])
            weight = distribute_tensor(whole, mesh, placements, src_data_rank=None)
            module.register_parameter("weight", nn.Parameter(weight))
        if leaf in SUMMED_UP:
            module.register_forward_hook(_reduce_output)

    distribute_module(model, mesh, partition)


def shard_batch(tokens: Tensor, mesh: DeviceMesh) -> DTensor:
    """Share out a batch (B, T), which every rank has, over all mesh dims but the last."""
    return distribute_tensor(tokens, mesh, _activations(mesh), src_data_rank=None)


def _activations(mesh: DeviceMesh) -> tuple[Placement, ...]:
    return (*[Shard(0)] * (mesh.ndim - 1), Replicate())


def _reduce_output(_module: nn.Module, _inputs: Any, output: DTensor) -> DTensor:
    reduced = _as_activations(output)
    if reduced.requires_grad:
        # A gradient that is still a sum would not do: torch cannot turn it into the masked sum
        # that a sharded embedding puts out.
        reduced.register_hook(_as_activations)  # type: ignore[no-untyped-call]
    return reduced


def _as_activations(x: DTensor) -> DTensor:
    return x.redistribute(placements=_activations(x.device_mesh))
