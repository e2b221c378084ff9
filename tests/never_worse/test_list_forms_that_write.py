"""Ops over lists that write to their elements, with partial arguments: as torch does them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor import DTensor, Partial, Replicate

import dtensor_registry as dr
from dtensor_registry_kit.simulation.mesh import on_every_rank

HELD = (torch.tensor([2.0, -4.0, 1.0]), torch.tensor([-1.0, 5.0, 3.0]))
REDUCED = {
    "sum": HELD[0] + HELD[1],
    "avg": (HELD[0] + HELD[1]) / 2,
    "max": torch.maximum(*HELD),
    "min": torch.minimum(*HELD),
}
PARAMETER = torch.tensor([1.0, 1.5, -2.0])
WRITES = (
    ("_foreach_add_", "avg"),
    ("_foreach_sub_", "avg"),
    ("_foreach_mul_", "sum"),
    ("_foreach_mul_", "avg"),
    ("_foreach_clamp_max_", "max"),
    ("_foreach_clamp_min_", "min"),
    ("_foreach_maximum_", "max"),
)


@pytest.fixture
def mesh(local_mesh: Any) -> Any:
    with dr.install(order=["torch"]):  # torch's own rules, expanded by the host
        yield local_mesh(2)


def partial(mesh: Any, reduction: str) -> DTensor:
    held = LocalTensor({rank: part.clone() for rank, part in enumerate(HELD)})
    return DTensor.from_local(held, mesh, [Partial(reduction)], run_check=False)


@pytest.mark.parametrize(("name", "reduction"), WRITES)
def test_a_whole_element_stays_whole_and_gets_the_reduced_number(
    mesh: Any, name: str, reduction: str
) -> None:
    write = getattr(torch, name)
    held = LocalTensor({rank: PARAMETER.clone() for rank in range(2)})
    element = DTensor.from_local(held, mesh, [Replicate()], run_check=False)
    write([element], [partial(mesh, reduction)])
    wanted = PARAMETER.clone()
    write([wanted], [REDUCED[reduction].clone()])
    assert element.placements == (Replicate(),)
    for part in on_every_rank(element):
        torch.testing.assert_close(part, wanted)


@pytest.mark.parametrize("name", ["_foreach_neg_", "_foreach_erfc_"])
def test_an_element_whose_kind_of_partial_would_change_is_refused(mesh: Any, name: str) -> None:
    with pytest.raises(RuntimeError, match="in-place operations that require placement changes"):
        getattr(torch, name)([partial(mesh, "max")])
