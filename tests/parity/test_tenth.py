"""A tenth of the gate: programs on four ranks, and calls on simulated ones."""

from __future__ import annotations

import pytest

from benchmarks.parity.__main__ import chosen_programs
from benchmarks.parity.pool import Pool
from benchmarks.parity.programs import PROGRAMS
from benchmarks.parity.run_calls import draw_calls, run_calls
from benchmarks.parity.run_programs import run_programs
from benchmarks.parity.verdict import Compared

GOOD = ("same", "better", "dearer by a correction")

AWAITED = {
    "loss-bce-logits-S0-6": "means over uneven pieces: a correction is on its way",
    "write-assign-number-S0": "writes into moved copies are lost",
    "order-where": "another shard order is another place",
    "order-mixed-gelu": "another shard order is another place",
}
"""Programs that are known to be wrong, each with what it waits for; `make parity` counts them."""


def bad(found: list[Compared]) -> list[str]:
    return [str(each) for each in found if each.verdict not in GOOD]


@pytest.mark.timeout(300)
def test_no_program_of_a_tenth_is_worse_than_on_bare_torch() -> None:
    names = [name for name in chosen_programs(None, tenth=True) if name not in AWAITED]
    programs = [PROGRAMS[name] for name in names]
    found = list(run_programs(programs, ("bare", "registry"), lambda: None))
    assert [each.name for each in found] == names
    assert bad(found) == []


@pytest.mark.timeout(300)
def test_no_call_of_some_ops_is_worse_than_on_bare_torch() -> None:
    calls = [call for name in OPS for call in draw_calls(name, False, lambda: None)]
    found = list(run_calls(calls, ("bare", "registry"), lambda: None))
    assert len(found) == len(calls)
    assert bad(found) == []


OPS = (
    "aten.add_.Tensor",
    "aten.mul.out",
    "aten._foreach_add_.List",
    "aten.mm.default",
    "aten.max.dim",
    "aten.embedding.default",
    "aten.cat.default",
)
"""One of each kind: what writes, contracts, reduces, indexes and joins."""


def test_ranks_that_cannot_install_stop_the_gate() -> None:
    with Pool("gloo", "no such way") as pool, pytest.raises(RuntimeError, match="do not come up"):
        pool.run({"program": "tp-block", "truth": ""}, 30)
