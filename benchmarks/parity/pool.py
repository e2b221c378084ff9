"""Long-lived processes that run tasks, ended and started anew when one of them hangs.

They are forked from one process that has imported torch, and nothing that patches it: to start
four ranks takes no longer than to start one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.parity.stage import RANKS

START_SECONDS = 120.0
"""What a pool may take to come up on a busy machine."""
GRACE_SECONDS = 8.0
"""How long ranks may be behind one that has failed, before they count as waiting for it."""
RANK = "benchmarks.parity.rank"


class Pool:
    """Processes that run tasks.

    Args:
        kind: `gloo`: four ranks; `simulated`: one process that simulates four; `one`: one process
            without ranks.
        way: how the ranks run.
    """

    def __init__(self, kind: str, way: str = "bare") -> None:
        self.kind = kind
        self.way = way
        self._ranks: list[tuple[BaseProcess, Connection]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self, task: dict[str, Any], seconds: float, *, alone: bool = False) -> dict[str, Any]:
        """Run a task on every rank; say what came of it on all of them.

        Args:
            task: what the ranks are to do.
            seconds: after which the task hangs.
            alone: whether the ranks run it first and last.

        Raises:
            RuntimeError: if the ranks do not come up.
        """
        if alone:
            self.stop()
        if not self._ranks:
            self._start()
        for _, pipe in self._ranks:
            with contextlib.suppress(BrokenPipeError):  # it has died; it will give no answer
                pipe.send(task)
        answers = self._answers(time.monotonic() + seconds)
        silent = [at for at in range(len(self._ranks)) if at not in answers]
        for at in silent:
            self._ranks[at][0].join(0.5)  # one that has died may take a moment to end
        result = merge(answers, [process.exitcode for process, _ in self._ranks])
        if silent:
            result["told"] += f"; rank {silent[0]}: {self._last_line(silent[0])}"
        alike = len({answer["told"] for answer in answers.values()}) == 1
        if alone or len(answers) < len(self._ranks) or (result["told"] and not alike):
            self.stop()  # what failed in other places may leave ranks out of step
        return result

    def _answers(self, deadline: float) -> dict[int, dict[str, Any]]:
        waiting: dict[Any, int] = {pipe: at for at, (_, pipe) in enumerate(self._ranks)}
        answers: dict[int, dict[str, Any]] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for pipe in wait(list(waiting), left):
                at = waiting.pop(pipe)
                with contextlib.suppress(EOFError, ConnectionResetError):  # it has died
                    answers[at] = pipe.recv()
                if at not in answers or answers[at]["outcome"] == "refused":
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        return answers

    def _start(self) -> None:
        from benchmarks.parity import rank

        self._folder = tempfile.TemporaryDirectory(prefix="parity-")
        folder = Path(self._folder.name)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([RANK])
        for number in range(RANKS if self.kind == "gloo" else 1):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=rank.main, args=(self.kind, self.way, number, folder, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._ranks.append((process, ours))
        ready = self._answers(time.monotonic() + START_SECONDS)
        if len(ready) < len(self._ranks) or any(a["outcome"] != "right" for a in ready.values()):
            told = [answer["told"] for answer in ready.values()] or ["no rank answers"]
            self.stop()
            raise RuntimeError(f"{self.kind} {self.way}: the ranks do not come up: {told[0]}")

    def _last_line(self, rank: int) -> str:
        """Give the last line that a rank has written."""
        assert self._folder is not None
        text = (Path(self._folder.name) / f"rank-{rank}.txt").read_text(errors="replace")
        return (text.strip().splitlines() or ["it has written nothing"])[-1][:200]

    def stop(self) -> None:
        """End the ranks, and whatever they have started."""
        for process, pipe in self._ranks:
            assert process.pid is not None
            for end in (os.killpg, os.kill):  # a rank that has just begun leads no group yet
                with contextlib.suppress(ProcessLookupError):
                    end(process.pid, signal.SIGKILL)
            process.join()
            pipe.close()
        self._ranks = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def merge(answers: dict[int, dict[str, Any]], codes: list[int | None]) -> dict[str, Any]:
    """Make one result of what the ranks say.

    A call that some ranks refuse while others wait hangs; it is wrong where it is wrong on any
    rank. Bytes are those of all ranks together.

    Args:
        answers: what ranks have said, by rank.
        codes: exit codes of all ranks, None for those that run.
    """
    said = [answers[rank] for rank in sorted(answers)]
    kinds = {answer["outcome"] for answer in said}
    silent = [rank for rank in range(len(codes)) if rank not in answers]
    refused = next((a["told"] for a in said if a["outcome"] == "refused"), "")
    if silent:
        dead = [rank for rank in silent if codes[rank] is not None]
        what = f"ranks {dead} died" if dead else f"ranks {silent} wait"
        told = f"{what}; the others: {refused}" if refused else what
        outcome = "hang"
    elif kinds == {"refused"}:
        outcome, told = "refused", refused
    elif "refused" in kinds:
        outcome, told = "hang", f"some ranks alone raise {refused}"
    elif "wrong" in kinds:
        outcome, told = "wrong", next(a["told"] for a in said if a["outcome"] == "wrong")
    else:
        outcome, told = "right", ""
    return {
        "outcome": outcome,
        "told": told,
        "collectives": said[0]["collectives"] if said else {},
        "bytes": sum(answer["bytes"] for answer in said),
        "seconds": max((answer["seconds"] for answer in said), default=0.0),
    }
