"""How a run with the registry is judged beside the run on bare torch."""

from __future__ import annotations

import pytest

from benchmarks.parity.__main__ import last_line, main
from benchmarks.parity.pool import merge
from benchmarks.parity.verdict import Compared, Seen, Verdict, judge

RIGHT = Seen("right", "", {"all_reduce": 1}, 64)
CHEAP = Seen("right", "", {}, 0)
LARGE = Seen("right", "", {"all_reduce": 1}, 128)
OTHER = Seen("right", "", {"all_gather": 1}, 64)
WRONG = Seen("wrong", "x is off by 1", {}, 0)
REFUSED = Seen("refused", "NotImplementedError: no rule", {}, 0)
HANG = Seen("hang", "ranks [1] wait", {}, 0)


@pytest.mark.parametrize(
    ("bare", "ours", "verdict"),
    [
        (RIGHT, RIGHT, "same"),
        (RIGHT, OTHER, "same"),
        (RIGHT, CHEAP, "better"),
        (RIGHT, LARGE, "worse"),
        (CHEAP, RIGHT, "worse"),
        (RIGHT, REFUSED, "worse"),
        (RIGHT, HANG, "worse"),
        (RIGHT, WRONG, "silently wrong"),
        (WRONG, WRONG, "silently wrong"),
        (WRONG, REFUSED, "better"),
        (WRONG, RIGHT, "better"),
        (REFUSED, RIGHT, "better"),
        (REFUSED, WRONG, "silently wrong"),
        (REFUSED, REFUSED, "same"),
        (REFUSED, HANG, "worse"),
        (HANG, REFUSED, "better"),
        (HANG, HANG, "same"),
    ],
)
def test_a_run_is_judged_by_what_bare_torch_does(bare: Seen, ours: Seen, verdict: Verdict) -> None:
    assert judge(bare, ours) == verdict


def test_of_two_ways_the_worse_one_counts() -> None:
    compared = Compared("program", "p", {"bare": RIGHT, "registry": CHEAP, "fallback": LARGE})
    assert compared.verdict == "worse"


def test_what_costs_more_by_a_correction_only_is_a_kind_of_its_own() -> None:
    def compared(ours: Seen, uncorrected: Seen) -> Compared:
        return Compared("call", "c", {"bare": RIGHT, "registry": ours}, uncorrected)

    assert compared(LARGE, RIGHT).verdict == "dearer by a correction"
    assert compared(LARGE, LARGE).verdict == "worse"
    assert compared(REFUSED, RIGHT).verdict == "worse"


def test_the_last_line_counts_everything() -> None:
    found = [
        Compared("call", "c", {"bare": RIGHT, "registry": RIGHT}),
        Compared("program", "p", {"bare": WRONG, "registry": RIGHT}),
    ]
    assert last_line(found) == (
        "parity: 1 calls, 1 programs: same 1, better 1, dearer by a correction 0, worse 0,"
        " silently wrong 0"
    )


def answer(outcome: str, told: str = "", size: int = 0) -> dict[str, object]:
    return {
        "outcome": outcome,
        "told": told,
        "collectives": {"all_reduce": 1},
        "bytes": size,
        "seconds": 0.1,
    }


def test_ranks_that_wait_for_one_that_raises_hang() -> None:
    merged = merge({1: answer("refused", "IndexError: empty")}, [None, None])
    assert merged["outcome"] == "hang"
    assert merged["told"] == "ranks [0] wait; the others: IndexError: empty"


def test_a_rank_that_dies_is_named() -> None:
    assert merge({0: answer("right")}, [None, -11])["told"] == "ranks [1] died"


def test_one_rank_that_raises_alone_is_a_hang_in_another_program() -> None:
    merged = merge({0: answer("refused", "IndexError"), 1: answer("right")}, [None, None])
    assert (merged["outcome"], merged["told"]) == ("hang", "some ranks alone raise IndexError")


def test_a_program_is_wrong_if_it_is_on_any_rank_and_bytes_are_of_all_ranks() -> None:
    merged = merge({0: answer("right", size=8), 1: answer("wrong", "off", 16)}, [None, None])
    assert (merged["outcome"], merged["told"], merged["bytes"]) == ("wrong", "off", 24)


@pytest.mark.parametrize(
    "named", [["--program", "no-such-program"], ["--only", "calls", "--program", "SGD-loop-R"]]
)
def test_a_gate_that_compares_nothing_does_not_pass(
    named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["parity", *named])
    with pytest.raises(SystemExit, match="nothing was compared"):
        main()
