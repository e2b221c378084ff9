"""A number that is read of a pending reduction is warned of, and nothing else is."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate

import dtensor_registry as dr
from dtensor_registry.torch_runtime.pending_values import PendingValueWarning
from tests.schema.world import local_ranks, on_mesh


@pytest.mark.parametrize("read", [lambda x: x.item(), float, bool])
@pytest.mark.parametrize("reduce_op", ["sum", "avg", "max"])
def test_a_number_read_of_a_pending_reduction_is_warned_of(read: Any, reduce_op: str) -> None:
    said = (
        f"aten._local_scalar_dense.default: a number is read (x.item(), float(x), if x: ...) of a"
        f" tensor placed (P({reduce_op})) on a mesh (2,). Its reduction is pending, so each rank"
        " reads what it holds itself.\n  Write, on all ranks:  x.full_tensor().item()"
    )
    with local_ranks(2) as mesh, dr.install(allowed=[]):
        x = on_mesh(torch.tensor(2.0), (Partial(reduce_op),), mesh)
        with pytest.warns(PendingValueWarning, match=f"^{re.escape(said)}$"):
            read(x)


def test_a_number_that_every_rank_has_is_read_without_a_word() -> None:
    with local_ranks(2) as mesh, dr.install(allowed=[]):
        x = on_mesh(torch.tensor(2.0), (Partial(),), mesh)
        assert x.full_tensor().reconcile().item() == 2.0
        assert bool(on_mesh(torch.tensor(1.0), (Replicate(),), mesh).item())
