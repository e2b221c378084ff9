"""Runs calls in every way: on simulated ranks, and what looks odd there on real ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.parity.calls import Call, calls_of, ops_of_torch, write_calls
from benchmarks.parity.pool import Pool
from benchmarks.parity.verdict import Compared, Seen
from benchmarks.parity.ways import Way
from dtensor_registry.torch_runtime.ops import find_op

SECONDS = 60.0
"""What a call may take; bare torch is slow for some of them, and other work for all."""
CHUNK = 100
"""Calls that are made in one way before they are made in the next."""


def draw_calls(wanted: Sequence[str], every: int, step: Callable[[], None]) -> list[Call]:
    """Draw calls.

    Args:
        wanted: names of calls, or of ops; empty: all.
        every: of all ops, every so many are taken.
        step: is called after each op.

    Raises:
        SystemExit: if no call is called so.
    """
    torch.set_num_threads(1)  # samples are small, and other ranks want the cores
    found: list[Call] = []
    for name in wanted:
        op = find_op(name.split("/")[0])
        named = [call for call in (calls_of(op) if op else ()) if name in (call.name, call.op)]
        if not named:
            raise SystemExit(f"{name}: there is no such call")
        found += named
    for op in ops_of_torch()[::every] if not wanted else ():
        found += calls_of(op)
        step()
    return found


def run_calls(
    calls: Sequence[Call], ways: Sequence[Way], step: Callable[[], None]
) -> Iterator[Compared]:
    """Make calls in every way; those that are wrong, or other than on bare torch, on gloo, too.

    Simulated ranks share a process and cannot hang, and are wrong in places where real ones are
    right: what real ranks do is what counts.

    Args:
        calls: the calls.
        ways: how.
        step: is called after each call.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-calls-"))
        workers = stack.enter_context(ThreadPoolExecutor(2))
        file = Path(folder) / "calls.pt"
        write_calls(calls, file)
        simulated = [stack.enter_context(Pool("simulated", way)) for way in ways]
        real = [stack.enter_context(Pool("gloo", way)) for way in ways]
        uncorrected = stack.enter_context(Pool("gloo", "uncorrected"))

        def make(call: Call, pool: Pool) -> Seen:
            return Seen.read(pool.run({"call": call.name, "file": str(file)}, SECONDS))

        def compared(call: Call, seen: Sequence[Seen]) -> Compared:
            return Compared("call", call.name, dict(zip(ways, seen, strict=True)), about=call.about)

        for first in range(0, len(calls), CHUNK):
            chunk = calls[first : first + CHUNK]
            made = workers.map(lambda pool: [make(call, pool) for call in chunk], simulated)  # noqa: B023
            for call, seen in zip(chunk, zip(*made, strict=True), strict=True):
                found = compared(call, seen)
                if found.is_odd:
                    found = compared(call, [make(call, pool) for pool in real])
                if found.moves_more:
                    found = replace(found, uncorrected=make(call, uncorrected))
                step()
                yield found
