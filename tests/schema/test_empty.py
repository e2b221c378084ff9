"""Where a rank would have nothing of a tensor, no rank raises alone: all do, or none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Shard

import dtensor_registry as dr
from tests.schema.kind import numbers
from tests.schema.outcome import difference
from tests.schema.world import S0, Placements, R, local_ranks, on_mesh

LIBRARY = torch.library.Library("schema_empty", "FRAGMENT")
FAKES = {
    # Most authors of a fake kernel think of the output's shape and no more.
    "careless": lambda x: x.new_empty(x.shape[1:]),
    "careful": lambda x: x.amax(0),
}
for name, fake in FAKES.items():
    LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    LIBRARY.impl(name, lambda x: x.amax(0), "CPU")
    torch.library.register_fake(f"schema_empty::{name}", fake, lib=LIBRARY)
OPS = torch.ops.schema_empty

# Rows, and on how many ranks: pieces are as large as the first, so that the last may be empty.
SOME_RANK_HAS_NOTHING = {"1 row on 2": (1, 2), "5 rows on 4": (5, 4), "9 rows on 8": (9, 8)}

# Ops whose rule of torch's the host expands. amax, argmax and norms have strategy functions of
# torch's for the whole mesh, which raise on one rank alone with and without the host.
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "kthvalue": lambda x: x.kthvalue(1, 0),
    "max.dim": lambda x: x.max(0),
    "median.dim": lambda x: x.median(0),
    "min.dim": lambda x: x.min(0),
    "mode": lambda x: x.mode(0),
    "nanmedian.dim": lambda x: x.nanmedian(0),
    "sort": lambda x: x.sort(0),
}


def rows(_: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return [[Partial("max"), Shard(0)], [Shard(0), Shard(1)]]


def peaks_on_gloo(rank: int) -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    op = OPS.careless.default
    with dr.register_single_dim_strategy(op)(rows):
        whole: Tensor = op(on_mesh(numbers(1, 4), (S0,), mesh)).full_tensor()
    return whole.tolist()


def refusals() -> Iterator[Any]:
    for fake, case, replicated in itertools.product(FAKES, SOME_RANK_HAS_NOTHING, [False, True]):
        # Fewer rows than ranks are never sharded, whatever the op can do.
        hidden = fake == "careless" and case != "1 row on 2" and not replicated
        reason = "a fake kernel that takes an empty input hides that the op itself does not"
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if hidden else []
        placements = (R,) if replicated else (S0,)
        yield pytest.param(fake, case, placements, id=f"{fake}-{case}-{placements}", marks=marks)


@pytest.mark.parametrize(("fake", "case", "placements"), list(refusals()))
def test_a_rule_is_not_followed_to_where_the_op_cannot_run(
    fake: str, case: str, placements: Placements
) -> None:
    (size, ranks), op = SOME_RANK_HAS_NOTHING[case], getattr(OPS, fake).default
    value = numbers(size, 4)
    with local_ranks(ranks) as mesh, dr.register_single_dim_strategy(op)(rows):
        assert difference(op(on_mesh(value, placements, mesh)), value.amax(0)) is None


def test_no_rank_of_real_processes_raises_alone(run_ranks: Any) -> None:
    assert run_ranks(peaks_on_gloo, ranks=2, timeout=90) == [numbers(1, 4)[0].tolist()] * 2


@pytest.mark.parametrize("case", SOME_RANK_HAS_NOTHING)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_torchs_own_rules_are_not_followed_there_either(
    repository_plugins: None, name: str, case: str
) -> None:
    size, ranks = SOME_RANK_HAS_NOTHING[case]
    reduce, value = REDUCTIONS[name], numbers(size, 4)
    with local_ranks(ranks) as mesh, dr.install(fallback={"mode": "silent"}):
        assert difference(reduce(on_mesh(value, (S0,), mesh)), reduce(value)) is None
