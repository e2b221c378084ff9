"""Every kind of op, sharded every way: the values of a single process, or a refusal by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.schema.kind import Kind
from tests.schema.outcome import OK, REFUSED, Outcome
from tests.schema.world import local_ranks
from tests.schema_matrix import CASES, KINDS, MESHES, outcomes

# What the registry does not do yet, and why.
PENDING = {
    ("schema_matrix.parts.default", "fallback"): "torch keeps no list among several outputs",
}
IN_ONE_PROCESS = [(kind, mode) for kind, mode in CASES if kind.local]
ON_GLOO = [(kind, mode) for kind, mode in CASES if kind.on_gloo]


def case(kind: Kind, mode: str) -> Any:
    reason = PENDING.get((str(kind.op), mode))
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(kind, mode, id=f"{kind.op}-{mode}", marks=marks)


def unexpected(kind: Kind, mode: str, found: dict[str, Outcome]) -> dict[str, str]:
    """List the columns that are neither right nor refused where the kind may be."""
    may_refuse = kind.refused[mode].split()
    return {
        column: f"{outcome.verdict}: {outcome.detail}"
        for column, outcome in found.items()
        if outcome.verdict != OK
        and not (outcome.verdict == REFUSED and {"all", *column.split()} & {*may_refuse})
    }


def run_on_gloo(rank: int) -> list[list[str]]:
    """List the cases that go wrong."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return [
        [str(kind.op), mode, *map(str, faults.items())]
        for kind, mode in ON_GLOO
        if (faults := unexpected(kind, mode, outcomes(kind, mode, mesh)))
    ]


def test_there_are_enough_kinds_and_a_third_of_them_run_on_real_processes() -> None:
    assert len(KINDS) >= 32
    assert len({kind.op for kind in KINDS}) == len(KINDS)
    assert 3 * len({kind.op for kind, _ in ON_GLOO}) >= len(KINDS)


@pytest.mark.parametrize("shape", MESHES, ids=str)
@pytest.mark.parametrize(("kind", "mode"), [case(*both) for both in IN_ONE_PROCESS])
def test_an_op_gives_the_values_of_a_single_process_or_refuses_by_name(
    repository_plugins: None, kind: Kind, mode: str, shape: tuple[int, ...]
) -> None:
    with local_ranks(*shape) as mesh:
        assert unexpected(kind, mode, outcomes(kind, mode, mesh)) == {}


@pytest.mark.parametrize("ranks", [2, 4])
def test_real_processes_give_the_same_values(
    repository_plugins: None, run_ranks: Any, ranks: int
) -> None:
    found = run_ranks(run_on_gloo, ranks=ranks, timeout=150)
    pending = [(str(k.op), mode) for k, mode in ON_GLOO if (str(k.op), mode) in PENDING]
    assert [[(op, mode) for op, mode, *_ in faults] for faults in found] == [pending] * ranks, found
