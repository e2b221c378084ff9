"""Runs calls in every way: on simulated ranks, and what looks odd there on real ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.parity.calls import Call, calls_of, ops_of_torch, write_calls
from benchmarks.parity.pool import Pool
from benchmarks.parity.verdict import Compared, Seen
from benchmarks.parity.ways import Way
from dtensor_registry._torch.catalog import find_op

SECONDS = 20.0
"""What a call may take; bare torch is slow for some of them."""


def draw_calls(wanted: str | None, tenth: bool, step: Callable[[], None]) -> list[Call]:
    """Draw calls.

    Args:
        wanted: a call's name, or an op's; None for all.
        tenth: whether to take every tenth op only.
        step: is called after each op.

    Raises:
        SystemExit: if no call is called so.
    """
    if wanted is not None:
        op = find_op(wanted.split("/")[0])
        named = [call for call in (calls_of(op) if op else ()) if wanted in (call.name, call.op)]
        if not named:
            raise SystemExit(f"{wanted}: there is no such call")
        return named
    found: list[Call] = []
    for op in ops_of_torch()[:: 10 if tenth else 1]:
        found += calls_of(op)
        step()
    # One mesh after the other, so that caches are warm.
    return sorted(found, key=lambda call: len(call.mesh))


def run_calls(
    calls: Sequence[Call], ways: Sequence[Way], step: Callable[[], None]
) -> list[Compared]:
    """Make calls in every way; those that are wrong, or other than on bare torch, on gloo, too.

    Simulated ranks share a process and cannot hang, and are wrong in places where real ones are
    right: what real ranks do is what counts.

    Args:
        calls: the calls.
        ways: how.
        step: is called after each simulated run.
    """
    with tempfile.TemporaryDirectory(prefix="parity-calls-") as folder:
        file = Path(folder) / "calls.pt"
        write_calls(list(calls), file)

        def run(kind: str, way: str, names: Iterable[str]) -> dict[str, Seen]:
            seen = {}
            with Pool(kind, way) as pool:
                for name in names:
                    task = {"call": name, "file": str(file)}
                    seen[name] = Seen.read(pool.run(task, SECONDS))
                    if kind == "simulated":
                        step()
            return seen

        names = [call.name for call in calls]
        with ThreadPoolExecutor(2) as workers:
            simulated = list(workers.map(lambda way: run("simulated", way, names), ways))
        about = {call.name: call.about for call in calls}
        compared = _compared(names, ways, simulated, about)
        odd = [name for name, each in compared.items() if _is_odd(each)]
        real = [run("gloo", way, odd) for way in ways]
        compared |= _compared(odd, ways, real, about)
        dear = [name for name in odd if _moves_more(compared[name])]
        if dear:
            for name, seen in run("gloo", "uncorrected", dear).items():
                bare = compared[name].seen["bare"]
                no_dearer = seen.count <= bare.count and seen.bytes <= bare.bytes
                compared[name] = replace(compared[name], uncorrected=no_dearer)
        return list(compared.values())


def _compared(
    names: Sequence[str],
    ways: Sequence[Way],
    seen: Sequence[Mapping[str, Seen]],
    about: Mapping[str, str],
) -> dict[str, Compared]:
    return {
        name: Compared(
            "call",
            name,
            {way: each[name] for way, each in zip(ways, seen, strict=True)},
            about=about[name],
        )
        for name in names
    }


def _is_odd(each: Compared) -> bool:
    return each.verdict != "same" or any(s.outcome == "wrong" for s in each.seen.values())


def _moves_more(each: Compared) -> bool:
    return each.verdict == "worse" and all(s.outcome == "right" for s in each.seen.values())
