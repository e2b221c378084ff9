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


def bad(found: list[Compared]) -> list[str]:
    return [str(each) for each in found if each.verdict not in GOOD]


@pytest.mark.timeout(300)
def test_no_program_of_a_tenth_is_worse_than_on_bare_torch() -> None:
    names = chosen_programs(["*"], every=10)
    programs = [PROGRAMS[name] for name in names]
    found = list(run_programs(programs, ("bare", "registry"), lambda: None))
    assert [each.name for each in found] == names
    assert bad(found) == []


@pytest.mark.timeout(300)
def test_no_call_of_some_ops_is_worse_than_on_bare_torch() -> None:
    calls = draw_calls(OPS, 1, lambda: None)
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
