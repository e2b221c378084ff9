"""Do all ranks shard alike? Compared over the store of the process group, without a collective.

A collective could pair with one of the program's own, or hang where a rank never comes. Here
each rank leaves its hash in the store and reads those of the others; only if they differ do
ranks leave what the hashes are made of.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dtensor_registry.errors import MissingRanksError, RanksDisagreeError
from dtensor_registry.fingerprint import Fingerprint
from dtensor_registry.torch_runtime.process_group_store import Meeting

TIMEOUT = 60.0
"""Seconds that ranks wait for each other."""

GRACE = 5.0
"""Seconds that a rank which has come may take to say what it decides by."""

ALL = "all"
"""What ends a meeting to which every rank has come."""

SHOWN = 10
"""Ops of which a difference is shown; one cause often has hundreds."""


def compare(mine: Fingerprint, meeting: Meeting, timeout: float = TIMEOUT) -> None:
    """Hold this rank's fingerprint against those of all others in a meeting.

    Args:
        mine: what this rank decides by.
        meeting: who compares; every rank of it must call this.
        timeout: seconds that a rank may be late.

    Raises:
        RanksDisagreeError: on every rank alike, if two of them decide by different things.
        MissingRanksError: if ranks have not come in time.
    """
    store = meeting.store
    place = f"dtensor_registry/{show_ranks(meeting.ranks)}"
    mine_done = f"{place}/done by {meeting.rank}"
    # The n-th meeting of one rank is the n-th of all: one that failed for want of ranks is
    # taken up again, as another attempt.
    number = f"{place}/{store.add(mine_done, 0)}"
    attempts = f"{number}/attempts"
    key = f"{number}/{store.add(attempts, 0)}"
    deadline = time.monotonic() + timeout
    store.set(f"{key}/{meeting.rank}", mine.digest)
    if store.check([f"{key}/{rank}" for rank in meeting.ranks]):
        # The last rank says so; one key is cheap to wait for. It may be too late all the same.
        store.compare_set(f"{key}/end", "", ALL)
    elif not _wait(store, f"{key}/end", deadline):
        missing = [rank for rank in meeting.ranks if not store.check([f"{key}/{rank}"])]
        verdict = json.dumps({"by": meeting.rank, "missing": missing, "timeout": timeout})
        # Who is missing is decided once, by the first whose time is out.
        if store.compare_set(f"{key}/end", "", verdict) == verdict.encode():
            store.add(attempts, 1)
    end = store.get(f"{key}/end").decode()
    if end != ALL:
        told = json.loads(end)
        raise MissingRanksError(show_ranks(told["missing"]), told["timeout"])
    store.add(mine_done, 1)
    try:
        _compare_all(mine, meeting, key)
    finally:
        _leave_together(meeting, key)


def _compare_all(mine: Fingerprint, meeting: Meeting, key: str) -> None:
    store = meeting.store
    digests = {rank: store.get(f"{key}/{rank}").decode() for rank in meeting.ranks}
    groups: dict[str, list[int]] = {}
    for rank, digest in digests.items():
        groups.setdefault(digest, []).append(rank)
    if len(groups) == 1:
        return
    if groups[mine.digest][0] == meeting.rank:
        write_parts(store, key, mine)
    parts = {tuple(of): read_parts(store, key, digest, of[0]) for digest, of in groups.items()}
    raise RanksDisagreeError(len(meeting.ranks), rank_differences(parts))


def _leave_together(meeting: Meeting, key: str) -> None:
    """Let all ranks read before one goes, which may end its process, and the store with it."""
    if meeting.store.add(f"{key}/read", 1) == len(meeting.ranks):
        meeting.store.set(f"{key}/all read", "")
    _wait(meeting.store, f"{key}/all read", time.monotonic() + GRACE)


def write_parts(store: Any, key: str, mine: Fingerprint) -> None:
    """Leave what a fingerprint is made of for ranks that have another one."""
    store.set(f"{key}/parts/{mine.digest}", json.dumps(mine.parts))


def read_parts(store: Any, key: str, digest: str, rank: int) -> dict[str, str]:
    """Read what another rank's fingerprint is made of.

    Raises:
        MissingRanksError: if that rank has not written it.
    """
    # That rank has been here just now: it writes at once, or never.
    if not _wait(store, f"{key}/parts/{digest}", time.monotonic() + GRACE):
        raise MissingRanksError(show_ranks([rank]), GRACE)
    return dict(json.loads(store.get(f"{key}/parts/{digest}")))


def rank_differences(parts: Mapping[tuple[int, ...], Mapping[str, str]]) -> list[str]:
    """Say what differs between groups of ranks, one paragraph for each part.

    An op differs with its plugin or setting; ops are listed only where that explains nothing.

    Args:
        parts: ranks -> name -> value.

    >>> print(*rank_differences({(0, 1): {"torch": "2.13"}, (2,): {"torch": "2.14"}}))
    torch
        ranks 0-1: 2.13
        rank 2: 2.14
    """
    names = dict.fromkeys(name for values in parts.values() for name in values)
    told: list[str] = []
    explained: set[str] = set()
    ops: list[str] = []
    for name in names:
        values = {ranks: of.get(name) for ranks, of in parts.items()}
        if len(set(values.values())) == 1:
            continue
        kind, _, subject = name.partition(" ")
        text = _paragraph(name, values)
        if kind in ("op", "fallback"):
            if not any(f"({plugin})" in (v or "") for v in values.values() for plugin in explained):
                ops.append(text)
            continue
        if kind == "plugin":
            explained.add(subject)
        told.append(text)
    # Another Python has other bytecode for every rule there is.
    if any(text.startswith("python") for text in told):
        ops = []
    more = [f"... and {len(ops) - SHOWN} more ops"] if len(ops) > SHOWN else []
    return [*told, *ops[:SHOWN], *more]


def show_ranks(ranks: Sequence[int]) -> str:
    """Write ranks as people do.

    >>> show_ranks([0, 1, 2, 5]), show_ranks([3])
    ('ranks 0-2, 5', 'rank 3')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _paragraph(name: str, values: Mapping[tuple[int, ...], str | None]) -> str:
    by_value: dict[str | None, list[int]] = {}
    for ranks, value in values.items():
        by_value.setdefault(value, []).extend(ranks)
    lines = [
        f"    {show_ranks(ranks)}: {'nothing' if value is None else value}"
        for value, ranks in sorted(by_value.items(), key=lambda item: min(item[1]))
    ]
    return "\n".join([name, *lines])


def _wait(store: Any, key: str, deadline: float) -> bool:
    """Wait for a key; say whether it came.

    Asking again and again leaves the store free for other threads, such as the watchdogs of
    process groups; a blocking wait would keep them out.
    """
    pause = 0.001
    while not store.check([key]):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return True
