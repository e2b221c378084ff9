"""What is explained is what dispatch then does, with data, on simulated ranks."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._pytree import tree_leaves

import dtensor_registry as dr
from dtensor_registry.explanation import AskedTensor, Explanation
from dtensor_registry.explanation.values import Decider
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.ops import find_op
from tests.conftest import PLUGINS_FIRST
from tests.explain.random_calls import RandomCall, made_real, random_calls

MESHES = {(2, 2): 120, (4,): 40, (2, 1, 2): 40}
NAMES = {
    "all_gather_into_tensor": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "shard_dim_alltoall": "all_to_all",
}


@pytest.mark.parametrize("shape", MESHES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("repository_plugins")
def test_same_placements_and_same_collectives(shape: tuple[int, ...], local_mesh: Any) -> None:
    calls = random_calls(MESHES[shape], shape, seed=7)
    # Plugins first, so that every kind of decider has calls.
    with dr.install(order=PLUGINS_FIRST, fallback={"mode": "silent"}) as installation:
        text = "x".join(map(str, shape))
        told = [
            installation.explain(call.op, *map(_text, call.args), mesh=text, most=0)
            for call in calls
        ]
        mesh = local_mesh(*shape)
        differences = [
            f"{call}: {difference}"
            for call, explanation in zip(calls, told, strict=True)
            if (difference := _difference(call, explanation, mesh)) is not None
        ]
    assert differences == []
    assert {explanation.decider for explanation in told} == set(get_args(Decider)) - {"nobody"}


def _text(value: Any) -> Any:
    """Write tensors as text, and leave other values as they are."""
    if isinstance(value, list):
        return [_text(item) for item in value]
    return str(value) if isinstance(value, AskedTensor) else value


def _difference(call: RandomCall, explanation: Explanation, mesh: Any) -> str | None:
    op: Any = find_op(call.op)
    args = made_real(call, mesh)
    with CommDebugMode() as counted, torch.no_grad():
        try:
            result = op(*args)
        except Exception as error:
            if explanation.error is None:
                return f"it raises {error}, which is not told"
            first = explanation.error.splitlines()[0]
            return None if first in str(error) else f"it raises {error}, told is {first}"
    if explanation.error is not None:
        return f"it does not raise {explanation.error.splitlines()[0]}"
    if explanation.decider == "handler" and explanation.notes:
        return None  # it reads values, and says that no more can be told without data
    outputs = [
        tuple(map(str, placements_from_torch(leaf.placements)))
        for leaf in tree_leaves(result)
        if isinstance(leaf, DTensor)
    ]
    if outputs != [tensor.placements for tensor in explanation.outputs]:
        return f"outputs {outputs}, told {[t.placements for t in explanation.outputs]}"
    ran: Counter[str] = Counter()
    for collective, count in counted.get_comm_counts().items():
        ran[NAMES[collective.__name__]] += count
    if ran != Counter(explanation.collectives):
        return f"collectives {dict(ran)}, told {dict(explanation.collectives)}"
    return None
