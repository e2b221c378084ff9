"""Long-lived gloo processes that run tasks, ended and started anew when one of them hangs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.parity.stage import RANKS

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
"""What a pool may take to come up on a busy machine, on top of its first task's time."""
GRACE_SECONDS = 8.0
"""How long ranks may be behind one that has failed, before they count as waiting for it."""


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
        self._ranks: list[subprocess.Popen[str]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._is_new = True

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
            task: what the ranks are told.
            seconds: after which the task hangs.
            alone: whether the ranks run it first and last.
        """
        if alone:
            self.stop()
        if not self._ranks:
            self._start()
        limit = seconds + (START_SECONDS if self._is_new else 0)
        self._is_new = False
        line = json.dumps(task) + "\n"
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(line)
                rank.stdin.flush()
            except BrokenPipeError:
                pass  # it has died; that it gives no answer says so
        answers = self._answers(time.monotonic() + limit)
        result = merge(answers, [rank.poll() for rank in self._ranks])
        alike = len({answer["told"] for answer in answers.values()}) == 1
        if alone or len(answers) < len(self._ranks) or (result["told"] and not alike):
            self.stop()  # what failed in other places may leave ranks out of step
        return result

    def _answers(self, deadline: float) -> dict[int, dict[str, Any]]:
        waiting = {rank.stdout: at for at, rank in enumerate(self._ranks)}
        answers: dict[int, dict[str, Any]] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(list(waiting), [], [], left)
            for pipe in ready:
                at = waiting.pop(pipe)
                line = pipe.readline()
                if line:
                    answers[at] = json.loads(line)
                if not line or answers[at]["outcome"] == "refused":
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        return answers

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="parity-")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DTENSOR_REGISTRY_")}
        environment |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(Path(self._folder.name) / "inductor")
        program = (sys.executable, "-m", "benchmarks.parity.rank")
        for rank in range(RANKS if self.kind == "gloo" else 1):
            with open(Path(self._folder.name) / f"rank-{rank}.txt", "w") as said:
                self._ranks.append(
                    subprocess.Popen(
                        [*program, self.kind, self.way, str(rank), self._folder.name],
                        cwd=ROOT,
                        env=environment,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=said,
                        text=True,
                        start_new_session=True,
                    )
                )
        self._is_new = True

    def said(self, rank: int = 0, lines: int = 40) -> str:
        """Give the end of what a rank has written to stderr."""
        assert self._folder is not None
        text = (Path(self._folder.name) / f"rank-{rank}.txt").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """End the ranks, and whatever they have started."""
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
            for pipe in (rank.stdin, rank.stdout):
                if pipe is not None:
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
