"""Run the main job: `PYTHONPATH=examples python -m main_job`.

It also runs under torchrun, with four processes: `torchrun --nproc-per-node 4 -m main_job`.

Exit code: 0 if the losses agree, 1 if they part, 2 if a run did not finish.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch.multiprocessing.spawn import SpawnContext, spawn

from main_job.comparison import compare
from main_job.job import RANKS, Event, Job, Measured, OpsSeen, StepDone
from main_job.metrics import Metrics
from main_job.report import OpRow, report
from main_job.torch_alone import Outcome, outcomes
from main_job.train import run_rank, train_plain

POLL_SECONDS = 0.05


class UnfinishedRunError(RuntimeError):
    """The ranks did not finish in time."""


@dataclass(slots=True)
class Findings:
    """What the two runs have told so far."""

    asked: tuple[Outcome, ...] = ()
    plain: list[float] = field(default_factory=list)
    sharded: list[float] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)
    rows: tuple[OpRow, ...] = ()


def main(arguments: list[str] | None = None) -> int:
    """Run both trainings, print what was found, and say whether they agree."""
    parser = argparse.ArgumentParser(prog="main_job", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=Job().steps, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=Job().seed, help="of weights and batches")
    parser.add_argument(
        "--time-limit", type=float, default=240.0, help="seconds that the four ranks may take"
    )
    options = parser.parse_args(arguments)
    job = Job(steps=options.steps, seed=options.seed)
    rank = int(os.environ.get("RANK", "0"))
    if rank > 0:
        run_rank(rank, RANKS, "env://", job, lambda _event: None)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 150)
    findings = Findings(outcomes() if "RANK" not in os.environ else ())
    with _progress(console, job.steps) as (plain_step, sharded_step):

        def note(event: Event, losses: list[float], step: Callable[[], None]) -> None:
            match event:
                case StepDone(loss):
                    losses.append(loss)
                    step()
                case Measured(metrics):
                    findings.metrics.append(metrics)
                case OpsSeen(rows):
                    findings.rows = rows

        for event in train_plain(job):
            note(event, findings.plain, plain_step)

        def note_sharded(event: Event) -> None:
            note(event, findings.sharded, sharded_step)

        if "RANK" in os.environ:
            run_rank(rank, RANKS, "env://", job, note_sharded)
        else:
            _run_ranks(job, note_sharded, options.time_limit)
    return conclude(findings, console)


def conclude(findings: Findings, console: Console) -> int:
    """Print what was found; 0 if the losses agree, else 1."""
    comparison = compare(findings.plain, findings.sharded)
    console.print(report(findings.asked, comparison, findings.metrics, findings.rows))
    return 0 if comparison.agrees else 1


def _run_ranks(job: Job, note: Callable[[Event], None], time_limit: float) -> None:
    """Start one process per rank and listen to rank 0 until all are done.

    Raises:
        UnfinishedRunError: if they take longer than the limit; a rank that fails raises
            torch's ProcessRaisedException with its traceback. No process is left behind.
    """
    events: SimpleQueue[Event] = multiprocessing.get_context("spawn").SimpleQueue()
    deadline = time.monotonic() + time_limit
    with tempfile.TemporaryDirectory(prefix="main_job-") as scratch:
        rendezvous = (Path(scratch) / "store").as_uri()
        ranks = spawn(  # type: ignore[no-untyped-call]
            run_rank, args=(RANKS, rendezvous, job, events.put), nprocs=RANKS, join=False
        )
        try:
            done = False
            while not done:
                done = ranks.join(timeout=POLL_SECONDS)
                while not events.empty():
                    note(events.get())
                if not done and time.monotonic() > deadline:
                    raise UnfinishedRunError(
                        f"the {RANKS} ranks did not finish within {time_limit:.0f} s;"
                        " give them more with --time-limit"
                    )
        finally:
            _end(ranks)


def _end(ranks: SpawnContext) -> None:
    for process in ranks.processes:
        if process.is_alive():
            process.kill()
        process.join()
    for file in ranks.error_files:  # outside our folder, and left by torch when a rank fails
        Path(file).unlink(missing_ok=True)


@contextmanager
def _progress(
    console: Console, steps: int
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Show a bar for each run; gives what to call after a step of the one and of the other."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        plain = progress.add_task("one process, plain tensors", total=steps)
        sharded = progress.add_task("four ranks, DTensors, mesh (dp=2, tp=2)", total=steps)
        yield (lambda: progress.advance(plain)), (lambda: progress.advance(sharded))


if __name__ == "__main__":
    sys.exit(main())
