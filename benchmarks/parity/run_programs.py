"""Runs programs in every way, beside one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.parity.pool import Pool
from benchmarks.parity.stage import Program
from benchmarks.parity.verdict import Compared, Seen
from benchmarks.parity.ways import Way


def run_programs(
    programs: Sequence[Program], ways: Sequence[Way], step: Callable[[], None]
) -> Iterator[Compared]:
    """Run programs in one process and on four ranks in each way; yield each when it is compared.

    Args:
        programs: what to run.
        ways: how.
        step: is called after each program.

    Raises:
        RuntimeError: for a program that fails in one process, which proves nothing.
    """
    with ExitStack() as stack:
        truth = stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-truth-"))
        one = stack.enter_context(Pool("one"))
        pools = {way: stack.enter_context(Pool("gloo", way)) for way in ways}
        uncorrected = stack.enter_context(Pool("gloo", "uncorrected"))
        for program in programs:
            task = {"program": program.name, "truth": truth}
            result = one.run(task, program.seconds)
            if result["outcome"] != "right":
                raise RuntimeError(f"{program.name} in one process: {result['told']}")

            def seen(pool: Pool, program: Program = program, task: object = task) -> Seen:
                return Seen.read(pool.run(task, program.seconds, alone=program.alone))  # type: ignore[arg-type]

            compared = Compared(
                "program", program.name, {way: seen(pool) for way, pool in pools.items()}
            )
            if compared.moves_more:
                compared = replace(compared, uncorrected=seen(uncorrected))
            step()
            yield compared
