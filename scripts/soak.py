"""Dispatch from several threads while rules change under them: right answers, flat memory.

`make soak` runs it: 20,000 dispatches, a change of rules every 100, 2 threads. Each answer must be
that of a rule which was in force while the call ran. Prints a table; exits with 1 on any failure.
"""

from __future__ import annotations

import argparse
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr

OP = "aten.neg.default"
PLACEMENTS = {"keep": (Shard(0),), "gather": (Replicate(),)}


def keep(op: Any, args: Any, kwargs: Any) -> Any:
    return [[dr.ShardingPlaceholder(0)] * 2]


def gather(op: Any, args: Any, kwargs: Any) -> Any:
    return []


def states() -> Iterator[tuple[str, Callable[[], AbstractContextManager[Any]] | None]]:
    """Yield, for ever, what is put in force next and what it answers; None takes all out again."""
    while True:
        yield "gather", lambda: dr.register_single_dim_strategy(OP)(gather)
        yield "keep", lambda: dr.register_single_dim_strategy(OP)(keep)
        yield "gather", lambda: dr.implicit_strategy_context([dr.OpStrategyPack(OP)])
        yield "keep", None  # torch's own rule


@dataclass
class Outcome:
    """What a run found.

    Attributes:
        sharp: calls during which rules did not change, so that one answer was right.
        memory: resident KiB after each tenth of the run.
    """

    dispatches: int
    changes: int
    wrong: list[str]
    seconds: float
    sharp: int = 0
    memory: list[int] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """KiB that the process grew by after the first two tenths, in which caches fill."""
        return self.memory[-1] - self.memory[min(1, len(self.memory) - 1)]


def soak(dispatches: int = 20_000, every: int = 100, threads: int = 2) -> Outcome:
    """Run the threads and change rules under them; needs a process group of two ranks."""
    x = DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    # What each state answers, and how many of them were begun and done.
    answers, done = ["keep"], 1
    count, limit, sharp, wrong = 0, 2 * every, 0, []
    turn = threading.Condition()

    def wait_for_changes() -> None:
        """Let nobody get far ahead of the changes, which go on meanwhile."""
        with turn:
            turn.wait_for(lambda: count < limit, timeout=60)

    def call() -> None:
        nonlocal count, sharp
        for _ in range(dispatches // threads):
            wait_for_changes()
            first = done - 1  # the oldest state that may be in force from here on
            placements = torch.neg(x).placements
            allowed = {PLACEMENTS[answer] for answer in answers[first:]}
            sharp += len(allowed) == 1
            if placements not in allowed:
                wrong.append(f"{placements}, in force: {answers[first:]}")
            with turn:
                count += 1
                turn.notify_all()

    # As in a program: installed before any thread dispatches. What a thread decides while nothing
    # is in force is torch's, and stays.
    base = dr.install(allowed=[])
    workers = [threading.Thread(target=call) for _ in range(threads)]
    outcome = Outcome(0, 0, wrong, 0)
    start = time.monotonic()
    for worker in workers:
        worker.start()
    with base, ExitStack() as stack:
        for answer, make in states():
            until = every * (outcome.changes + 1)
            with turn:
                turn.wait_for(lambda: count >= min(until, dispatches), timeout=60)  # noqa: B023
            if count >= dispatches or not any(worker.is_alive() for worker in workers):
                break
            answers.append(answer)
            if make is None:
                # On the way out, every state since torch's own is in force once more.
                answers.extend(["gather", "keep", "gather", "keep"])
                stack.pop_all().close()
                done = len(answers)
            else:
                stack.enter_context(make())
                done = len(answers)
            outcome.changes += 1
            with turn:
                limit += every
                turn.notify_all()
            if until % max(dispatches // 10, 1) < every:
                gc.collect()
                outcome.memory.append(resident())
    for worker in workers:
        worker.join()
    outcome.dispatches, outcome.sharp, outcome.seconds = count, sharp, time.monotonic() - start
    gc.collect()
    outcome.memory.append(resident())
    return outcome


def resident() -> int:
    """Resident memory of this process, KiB."""
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dispatches", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    outcome = soak(chosen.dispatches, chosen.every, chosen.threads)
    dist.destroy_process_group()
    rows = [
        ("dispatches", f"{outcome.dispatches:,}"),
        ("threads", str(chosen.threads)),
        ("changes of rules", f"{outcome.changes:,}"),
        ("calls during which nothing changed", f"{outcome.sharp:,}"),
        ("answers of a rule that was not in force", str(len(outcome.wrong))),
        ("seconds", f"{outcome.seconds:.1f}"),
        ("resident MiB, by tenths", " ".join(f"{kib / 1024:.0f}" for kib in outcome.memory)),
        ("growth after the second tenth, KiB", f"{outcome.growth:,}"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    for problem in outcome.wrong[:5]:
        print(f"wrong: {problem}")
    complete = outcome.dispatches == chosen.dispatches // chosen.threads * chosen.threads
    return 0 if complete and not outcome.wrong and outcome.growth < 8192 else 1


if __name__ == "__main__":
    raise SystemExit(main())
