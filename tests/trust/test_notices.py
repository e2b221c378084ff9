"""Ranks that would shard differently are found by default, and nobody waits for anybody."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from dtensor_registry.errors import RanksDisagreeError
from dtensor_registry.fingerprint import Fingerprint
from dtensor_registry.installation import rank_notices
from dtensor_registry.installation.rank_notices import Notice, UncheckedRanksWarning
from dtensor_registry.settings import read_settings
from dtensor_registry.torch_runtime.process_group_store import Meeting
from tests.trust.test_ranks import installed, plugin, shift, told


class CountingStore:
    """A store that counts the requests that are made to it."""

    def __init__(self) -> None:
        self.store = dist.HashStore()
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        self.requests += 1
        return getattr(self.store, name)


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have every rank of this process use its mesh for the first time."""
    return lambda: monkeypatch.setattr(rank_notices, "_notices", rank_notices.Counter())


def fingerprint(version: str) -> Fingerprint:
    return Fingerprint((("torch", "2.13.0"), ("plugin acme", f"acme-rules {version}")))


def notices(versions: str, store: Any, numbered: Any) -> list[Notice]:
    """Make the notices of ranks with these versions of a plugin, a letter each."""
    made = []
    for rank, version in enumerate(versions):
        numbered()
        made.append(Notice(fingerprint(version), Meeting(store, rank, tuple(range(len(versions))))))
    return made


def outcome(action: Any) -> str:
    try:
        action()
    except RanksDisagreeError as error:
        return "\n".join(error.differences)
    return "no error"


@pytest.mark.parametrize("versions", ["ab", "aab", "aaab", "abab", "abcd"])
def test_in_every_order_of_arrival_the_last_rank_sees_a_difference_and_all_others_learn_of_it(
    versions: str, numbered: Any
) -> None:
    for order in itertools.permutations(range(len(versions))):
        ranks = notices(versions, dist.HashStore(), numbered)
        on_arrival = {rank: outcome(ranks[rank].publish) for rank in order}
        assert "plugin acme" in on_arrival[order[-1]]
        for one in ranks:
            one._next_look = 0
        learnt = {outcome(one.look_again) for one in ranks}
        assert "no error" not in learnt
        assert all("acme-rules" in text for text in learnt)
        # A difference is named with the ranks that have it, and both values.
        first = next(text for text in on_arrival.values() if text != "no error")
        assert {f"acme-rules {version}" in first for version in set(versions)} >= {True}


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_decide_alike_agree_in_every_order_of_arrival(ranks: int, numbered: Any) -> None:
    for order in itertools.permutations(range(ranks)):
        made = notices("a" * ranks, dist.HashStore(), numbered)
        assert {outcome(made[rank].publish) for rank in order} == {"no error"}


def test_a_mesh_costs_one_request_to_the_store_and_the_first_rank_one_more(numbered: Any) -> None:
    store = CountingStore()
    spent = []
    for one in notices("aaaa", store, numbered):
        before = store.requests
        one.publish()
        spent.append(store.requests - before)
    assert spent == [2, 1, 1, 1]


def test_reading_again_takes_at_most_a_twentieth_of_the_time(
    numbered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]

    class SlowStore(CountingStore):
        def __getattr__(self, name: str) -> Any:
            now[0] += 0.01
            return super().__getattr__(name)

    monkeypatch.setattr(rank_notices.time, "monotonic", lambda: now[0])
    store = SlowStore()
    (one, _) = notices("aa", store, numbered)
    one.publish()
    before = store.requests
    for _ in range(1000):  # a second of decisions of a millisecond each
        now[0] += 0.001
        one.look_again()
    assert store.requests - before == pytest.approx(1000 * 0.001 / (0.01 / 0.05), abs=2)


def test_a_store_that_does_not_answer_costs_a_warning_and_not_the_program(numbered: Any) -> None:
    class LostStore:
        def __getattr__(self, name: str) -> Any:
            raise dist.DistNetworkError("connection reset")

    (one, _) = notices("aa", LostStore(), numbered)
    with pytest.warns(UncheckedRanksWarning, match="ranks 0-1 are not compared.*reset"):
        one.publish()
    one.look_again()  # asks no more


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} did not come"
        time.sleep(0.01)


def in_turn(folder: Path, rank: int, order: tuple[int, ...], action: Any) -> Any:
    """Act when all ranks before this one in the order have acted."""
    place = order.index(rank)
    if place:
        wait_for(folder / f"{order[place - 1]}")
    try:
        return action()
    finally:
        (folder / f"{rank}").touch()


def scenes(ranks: int) -> list[tuple[int, ...]]:
    """Say in which orders ranks arrive; rank 1 is the one that differs."""
    if ranks == 2:
        return [(0, 1), (1, 0)]
    return [(0, 2, 3, 1), (1, 0, 2, 3), (3, 0, 1, 2)]


def seen_by(rank: int) -> dict[str, Any]:
    sys.dont_write_bytecode = True  # one module name with several sources
    ranks = dist.get_world_size()
    shared = [tempfile.mkdtemp()]
    dist.broadcast_object_list(shared)
    place = Path(shared[0])
    seen: dict[str, Any] = {}
    for order in scenes(ranks):
        turn = place / "".join(map(str, order))
        turn.mkdir(exist_ok=True)
        with plugin("1.1" if rank == 1 else "1.0"), installed():
            mesh = init_device_mesh("cpu", (ranks,))
            x = DTensor.from_local(torch.ones(2), mesh, [Shard(0)])
            start = time.monotonic()
            first = in_turn(turn, rank, order, lambda: told(lambda: shift(x)))  # noqa: B023
            wait_for(turn / f"{order[-1]}")
            time.sleep(0.2)  # more than twenty times what a look at the store takes
            again = told(lambda: torch.neg(x))  # noqa: B023
            seen[f"first {order}"], seen[f"again {order}"] = first, again
            seen["seconds"] = max(seen.get("seconds", 0), time.monotonic() - start)
        dist.barrier()
    with plugin("1.1" if rank == 1 else "1.0"):
        with installed():
            # Ranks that share no mesh with the one that differs have nothing to fear from it.
            grid = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
            x = DTensor.from_local(torch.ones(2), grid["tp"], [Shard(0)])
            seen["a part of the mesh"] = told(lambda: shift(x))
            dist.barrier()
            time.sleep(0.2)
            seen["a part of the mesh, again"] = told(lambda: torch.neg(x))
        dist.barrier()
        with installed(check_ranks="off"):
            seen["switched off"] = told(lambda: torch.neg(x))
    dist.barrier()
    outside = DeviceMesh("cpu", [0])
    with plugin("1.1" if rank == 1 else "1.0"), installed():
        y = DTensor.from_local(torch.ones(2), outside, [Shard(0)], run_check=False)
        seen["outside"] = told(lambda: torch.neg(y))
    return seen


@pytest.fixture(scope="module", params=[2, 4])
def seen(run_ranks: Any, request: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = run_ranks(seen_by, ranks=request.param, timeout=100)
    return result


def test_real_ranks_with_another_plugin_stop_with_an_error_that_names_it(seen: Any) -> None:
    for order in scenes(len(seen)):
        last = seen[order[-1]][f"first {order}"]
        assert last.startswith(f"RanksDisagreeError: {len(seen)} ranks do not decide alike;")
        for one in seen:
            assert "acme-rules 1.1 (acme_rules) active" in one[f"again {order}"]
    assert max(one["seconds"] for one in seen) < 10


def test_ranks_are_compared_with_those_of_their_own_mesh_alone(seen: Any) -> None:
    for rank, one in enumerate(seen):
        differs = rank < 2
        assert ("do not decide alike" in one["a part of the mesh, again"]) == differs
        assert one["switched off"] == "no error"


def test_a_rank_outside_of_a_mesh_is_not_compared(seen: Any) -> None:
    assert [one["outside"] for one in seen] == ["no error"] * len(seen)


@pytest.mark.parametrize(
    ("given", "meaning"), [(True, "wait"), ("false", "off"), ("1", "wait"), ("wait", "wait")]
)
def test_the_setting_still_takes_true_and_false(given: Any, meaning: str) -> None:
    assert read_settings(check_ranks=given).check_ranks == meaning
