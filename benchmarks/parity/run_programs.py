"""Runs programs in every way, beside one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from benchmarks.parity.pool import Pool
from benchmarks.parity.stage import Program
from benchmarks.parity.verdict import Compared, Seen
from benchmarks.parity.ways import Way


def run_programs(
    programs: Sequence[Program], ways: Sequence[Way], step: Callable[[], None]
) -> list[Compared]:
    """Run programs in one process first, then on four ranks in each way.

    Args:
        programs: what to run.
        ways: how.
        step: is called after each run.

    Raises:
        RuntimeError: for a program that fails in one process, which proves nothing.
    """
    with tempfile.TemporaryDirectory(prefix="parity-truth-") as truth:
        with Pool("one") as one:
            for program in programs:
                result = one.run({"program": program.name, "truth": truth}, program.seconds)
                if result["outcome"] != "right":
                    raise RuntimeError(f"{program.name} in one process: {result['told']}")
                step()
        with ThreadPoolExecutor(1) as workers:
            found = list(workers.map(lambda way: _one_way(programs, way, truth, step), ways))
        compared = [
            Compared("program", program.name, dict(zip(ways, seen, strict=True)))
            for program, seen in zip(programs, zip(*found, strict=True), strict=True)
        ]
        return _without_corrections(programs, compared, truth)


def _one_way(
    programs: Sequence[Program], way: str, truth: str, step: Callable[[], None]
) -> list[Seen]:
    seen = []
    with Pool("gloo", way) as pool:
        for program in programs:
            task = {"program": program.name, "truth": truth}
            seen.append(Seen.read(pool.run(task, program.seconds, alone=program.alone)))
            step()
    return seen


def _without_corrections(
    programs: Sequence[Program], compared: Sequence[Compared], truth: str
) -> list[Compared]:
    """Run those that move more once more, with torch's wrong rows left in."""
    dear = [
        at
        for at, each in enumerate(compared)
        if each.verdict == "worse" and all(seen.outcome == "right" for seen in each.seen.values())
    ]
    if not dear:
        return list(compared)
    again = _one_way([programs[at] for at in dear], "uncorrected", truth, lambda: None)
    found = list(compared)
    for at, seen in zip(dear, again, strict=True):
        bare = found[at].seen["bare"]
        no_dearer = seen.count <= bare.count and seen.bytes <= bare.bytes
        found[at] = replace(found[at], uncorrected=seen.outcome == "right" and no_dearer)
    return found
