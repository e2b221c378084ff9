"""Checks in processes of their own: a task that raises, hangs or kills its process."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry_kit.isolation import Isolated, run_isolated

WORK = """
import os, signal, sys, time

def work(task, note):
    note(f"step one of {task}")
    if task == "dies":
        print("kernel: bad pointer", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "leaves":
        os._exit(3)
    if task == "raises":
        raise KeyError("dim")
    if task == "hangs":
        time.sleep(600)
    if task == "naps":
        time.sleep(0.2)
    if task == "process":
        return os.getpid()
    return f"{task} done"
"""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A function in a module that another process can import."""
    (tmp_path / "isolated_work.py").write_text(WORK, "utf-8")
    sys.path.append(str(tmp_path))
    yield importlib.import_module("isolated_work").work
    sys.path.remove(str(tmp_path))
    del sys.modules["isolated_work"]


def test_every_task_has_an_outcome_whatever_happens_to_its_process(work: Any) -> None:
    tasks = ["a", "dies", "raises", "b", "leaves", "hangs", "c"]
    found = {o.task: o for o in run_isolated(work, tasks, processes=2, seconds_per_task=3)}
    assert {task: outcome.state for task, outcome in found.items()} == {
        "a": "done",
        "dies": "died",
        "raises": "raised",
        "b": "done",
        "leaves": "died",
        "hangs": "late",
        "c": "done",
    }
    assert found["a"].result == "a done"
    assert found["dies"].message == (
        "the process died (SIGSEGV) in the middle of: step one of dies;"
        " it said: kernel: bad pointer"
    )
    assert found["leaves"].message == (
        "the process died (exit code 3) in the middle of: step one of leaves"
    )
    assert found["raises"].message.endswith("KeyError: 'dim'\n")
    assert "in the middle of: step one of hangs" in found["hangs"].message


def test_no_task_is_begun_after_the_deadline(work: Any) -> None:
    assert list(run_isolated(work, ["a", "b"], deadline=time.monotonic() - 1)) == []


def test_a_process_is_kept_until_it_is_lost_and_then_replaced(work: Any) -> None:
    isolated: Isolated[str, Any] = Isolated(work)
    try:
        first, again = (isolated.run("process").result for _ in range(2))
        assert isolated.run("dies").state == "died"
        other = isolated.run("process").result
    finally:
        isolated.close()
    assert first == again != other


def test_a_task_is_not_late_because_its_outcome_is_fetched_late(work: Any) -> None:
    states = []
    for outcome in run_isolated(work, ["naps"] * 6, processes=2, seconds_per_task=1):
        states.append(outcome.state)
        time.sleep(1.1)
    assert states == ["done"] * 6
