"""The page of parity counts a run that was repeated once, as it came out last."""

from __future__ import annotations

from typing import Any

from benchmarks.parity.page import page, with_reruns


def a_run(torch: str, **verdicts: str) -> dict[str, Any]:
    seen = {"outcome": "right", "told": "", "collectives": {}, "bytes": 0}
    ways = {"bare": seen, "registry": seen}
    return {
        "torch": torch,
        "every": 1,
        "found": [
            {"kind": "call", "name": name, "verdict": verdict, "ways": ways}
            for name, verdict in verdicts.items()
        ],
    }


def test_a_later_run_of_some_calls_replaces_what_the_first_said_of_them() -> None:
    runs = [a_run("2.13.0", a="worse", b="same"), a_run("2.15.0", a="worse")]
    (old, new) = with_reruns([*runs, a_run("2.13.0", a="better")])
    assert [each["verdict"] for each in old["found"]] == ["better", "same"]
    assert new == runs[1]
    assert "| 2.13.0 | 2 calls, 1 of them once more, on later code | 1 | 1 | 0 |" in page([old])


def test_a_run_of_other_calls_stands_beside_the_first() -> None:
    runs = [a_run("2.13.0", a="worse"), a_run("2.13.0", b="same")]
    assert with_reruns(runs) == runs
