"""Ranks that compare their rules and wait for each other say the same, and leave together."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch.distributed as dist

from dtensor_registry.errors import InstallError
from dtensor_registry.fingerprint import Fingerprint
from dtensor_registry.installation.rank_check import compare
from dtensor_registry.torch_runtime.process_group_store import Meeting

RANKS = (0, 1, 2, 3)


class SlowStore:
    """A store that keeps one rank waiting, and notes who has read what the others wrote."""

    def __init__(self, store: Any, rank: int, seconds: float, log: list[str]) -> None:
        self.store, self.rank, self.seconds, self.log = store, rank, seconds, log

    def get(self, key: str) -> Any:
        time.sleep(self.seconds)
        found = self.store.get(key)
        self.log.append(f"{self.rank} read")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def come(rank: int, store: Any, timeout: float, late: float = 0, version: str = "1") -> str:
    time.sleep(late)
    mine = Fingerprint((("plugin acme", version),))
    try:
        compare(mine, Meeting(store, rank, RANKS), timeout)
    except InstallError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def all_of(calls: list[Any]) -> list[str]:
    with ThreadPoolExecutor(len(calls)) as ranks:
        return [call.result(timeout=60) for call in [ranks.submit(*call) for call in calls]]


def test_who_is_missing_is_the_same_for_all_who_waited_and_for_who_came_later() -> None:
    store = dist.HashStore()
    # Ranks that came at other times are out of time at other times.
    calls = [(come, rank, store, 1.0, rank * 0.3) for rank in RANKS[:3]]
    told = all_of(calls)
    assert set(told) == {told[0]}
    assert told[0].startswith("MissingRanksError: rank 3 did not come within 1 s")


def test_a_meeting_that_failed_is_taken_up_again_by_all() -> None:
    store = dist.HashStore()
    all_of([(come, rank, store, 0.2) for rank in RANKS[:3]])
    assert all_of([(come, rank, store, 20.0) for rank in RANKS]) == ["no error"] * 4
    differing = [(come, rank, store, 20.0, 0, str(rank == 2)) for rank in RANKS]
    assert "rank 2: True" in all_of(differing)[0]


@pytest.mark.parametrize("version", ["1", "2"])
def test_no_rank_leaves_before_all_others_have_read_what_it_wrote(version: str) -> None:
    store, log, lock = dist.HashStore(), [], threading.Lock()

    def rank(number: int) -> None:
        own = SlowStore(store, number, 0.1 * (number == 3), log)
        come(number, own, 20, 0, version if number == 3 else "1")
        with lock:
            log.append(f"{number} left")

    all_of([(rank, number) for number in RANKS])
    first_left = next(at for at, entry in enumerate(log) if entry.endswith("left"))
    assert "3 read" in log[:first_left]
    assert not any(entry.endswith("read") for entry in log[first_left:])
