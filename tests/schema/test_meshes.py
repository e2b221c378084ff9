"""Ranks outside the mesh of a call, and calls whose tensors are on several meshes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from tests.schema.kind import Kind
from tests.schema.outcome import difference
from tests.schema.world import S0, R, local_ranks, placed
from tests.schema_matrix import KINDS, registry

BY_NAME = {str(kind.op).removeprefix("schema_matrix."): kind for kind in KINDS}
# Sharded by a rule and by the fallback; the latter alone runs all but the first by itself.
ON_PART = ("fn.default", "kwt.default", "noout.default", "two.default", "multiples.default")


def on_half_of_the_ranks(rank: int) -> dict[str, str | None]:
    """Run on ranks 0 and 1 of 4, as a program does: every rank makes the call."""
    world = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    mesh = DeviceMesh("cpu", [0, 1])
    assert world.ndim == 2
    found = {}
    for name in ON_PART:
        for mode in ("rule", "fallback"):
            with registry(BY_NAME[name], mode):
                found[f"{name} {mode}"] = _on_part(BY_NAME[name], mesh)
    return found


def _on_part(kind: Kind, mesh: DeviceMesh) -> str | None:
    inside = dist.get_rank() < mesh.size()
    args, kwargs = kind.calls[0]([tensor.clone() for tensor in kind.tensors])
    expected = kind.op(*args, **kwargs)
    written = tree_leaves((args, kwargs))
    given = placed(kind.tensors, [(S0,), (R,)], mesh) if inside else _outside(kind, mesh)
    args, kwargs = kind.calls[0](given)
    result = kind.op(*args, **kwargs)
    if inside:
        return difference([result, *tree_leaves((args, kwargs))], [expected, *written])
    shapes = [tuple(t.shape) for t in tree_leaves(result) if isinstance(t, DTensor)]
    same = shapes == [tuple(t.shape) for t in tree_leaves(expected) if t is not None]
    return None if same else f"a rank outside has shapes {shapes}"


def _outside(kind: Kind, mesh: DeviceMesh) -> list[DTensor]:
    return [
        DTensor.from_local(
            torch.empty(0), mesh, [S0 if at % 2 == 0 else R], run_check=False,
            shape=value.shape, stride=value.stride(),
        )
        for at, value in enumerate(kind.tensors)
    ]  # fmt: skip


def test_ranks_outside_the_mesh_get_empty_tensors_of_the_right_global_shape(
    repository_plugins: None, run_ranks: Any
) -> None:
    found = run_ranks(on_half_of_the_ranks, ranks=4, timeout=120)
    names = [f"{name} {mode}" for name in ON_PART for mode in ("rule", "fallback")]
    assert found == [dict.fromkeys(names)] * 4


@pytest.mark.parametrize("name", ["fn.default", "kwt.default", "noout.default"])
@pytest.mark.parametrize("mode", ["rule", "fallback"])
def test_tensors_of_two_meshes_are_refused_by_name_of_the_op(
    repository_plugins: None, name: str, mode: str
) -> None:
    kind = BY_NAME[name]
    with local_ranks(2, 2) as mesh, registry(kind, mode):
        line = init_device_mesh("cpu", (4,))
        x, _ = placed(kind.tensors, [(S0, R)], mesh)
        _, y = placed(kind.tensors, [(S0,)], line)
        args, kwargs = kind.calls[0]([x, y])
        with pytest.raises(Exception, match=r"mesh") as refused:
            kind.op(*args, **kwargs)
        assert str(kind.op) in str(refused.value) or kind.op.name() in str(refused.value)
