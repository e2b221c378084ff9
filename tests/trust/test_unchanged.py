"""Installed without plugins and without torch's rules, the host changes nothing that torch does.

A slice of torch's own samples by default; 300 operators with `DTENSOR_REGISTRY_LONG=1`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

import dtensor_registry as dr

LONG = bool(os.environ.get("DTENSOR_REGISTRY_LONG"))
WANTED = 300 if LONG else 24
RANKS = 2

pytestmark = pytest.mark.timeout(3600)


def entries() -> list[Any]:
    """Take operators from all over the database, always the same."""
    usable = [entry for entry in op_db if torch.float32 in entry.dtypes]
    step = max(len(usable) // (WANTED + WANTED // 5), 1)
    return usable[::step]


def samples(entry: Any) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Give the first sample in which a tensor can be cut."""
    torch.manual_seed(0)
    for sample in entry.sample_inputs("cpu", torch.float32):
        leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(t.layout != torch.strided for t in tensors):
            return
        if any(t.dim() and t.shape[0] >= RANKS for t in tensors):
            yield sample.input, tuple(sample.args), dict(sample.kwargs)
            return


def placed(tree: Any, mesh: Any) -> Any:
    """Make a DTensor of every tensor: cut along dim 0 where it is long enough, or whole."""

    def place(tensor: torch.Tensor) -> DTensor:
        if tensor.dim() and tensor.shape[0] >= RANKS and tensor.shape[0] % RANKS == 0:
            half = tensor.shape[0] // RANKS
            return DTensor.from_local(tensor[:half].clone(), mesh, [Shard(0)])
        return DTensor.from_local(tensor.clone(), mesh, [Replicate()])

    return tree_map_only(torch.Tensor, place, tree)


def seen(entry: Any, given: Any, mesh: Any) -> list[str]:
    """Run one operator, and write down results, placements and collectives, or that it failed."""
    torch.manual_seed(0)
    first, args, kwargs = placed(given, mesh)
    communication = CommDebugMode()
    try:
        with communication, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = entry.op(first, *args, **kwargs)
    except Exception:
        return ["an error"]  # the host's says more than torch's
    counts = communication.get_comm_counts()
    told = [f"{op}: {count}" for op, count in sorted(counts.items(), key=str) if count]
    for value in tree_leaves(result):
        if isinstance(value, DTensor):
            local = value.to_local()
            told += [str(value.placements), str(tuple(value.shape)), str(local.dtype)]
            # Bits, so that what is not a number is compared as well.
            told.append(str(local.detach()))
        else:
            told.append(str(value))
    return told


def test_results_placements_and_collectives_are_those_of_bare_torch(local_mesh: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [(entry, sample) for entry in entries() for sample in samples(entry)][:WANTED]
    mesh = local_mesh(RANKS)
    bare = [seen(entry, sample, mesh) for entry, sample in given]
    with dr.install(allowed=[], torch_rules=False):
        hosted = [seen(entry, sample, mesh) for entry, sample in given]
    assert len(given) == WANTED
    names = [entry.name for entry, _ in given]
    differ = {
        name: (torchs, ours)
        for name, torchs, ours in zip(names, bare, hosted, strict=True)
        if torchs != ours
    }
    assert differ == {}
    # The comparison is of something: most operators run, and some of them communicate.
    ran = [told for told in bare if any("Shard" in text or "Replicate" in text for text in told)]
    assert len(ran) > WANTED / 2
    assert any("c10d_functional" in text for told in bare for text in told)
