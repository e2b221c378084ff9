"""Run checks in processes of their own, so that a kernel that crashes takes down no more than one.

A kernel that is given pieces it was never meant for may read past its memory. The process
dies, the parent says so of the task at hand, starts another process, and goes on.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Note: TypeAlias = Callable[[str], None]
"""Writes down what is being done, where the parent finds it if the process dies."""


def silent(text: str) -> None:
    """Note nothing: what runs in the caller's own process has nobody to tell."""


_NOTE_BYTES = 2000
_TAIL = 300
_CLOSING_SECONDS = 2.0
_STARTING_SECONDS = 180.0
"""A new process imports torch; its first task's time begins when it has."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T, R]):
    """What became of one task.

    Attributes:
        task: the task.
        state: `done`; `raised`; `died`: the process was killed by a signal or left; `late`: it
            took longer than it may.
        result: of a task that is done.
        message: the traceback, or how the process died and what it was doing.
        seconds: how long it took.
    """

    task: T
    state: Literal["done", "raised", "died", "late"]
    result: R | None
    message: str
    seconds: float


def run_isolated(
    function: Callable[[T, Note], R],
    tasks: Iterable[T],
    *,
    processes: int = 1,
    seconds_per_task: float = 300.0,
    deadline: float | None = None,
) -> Iterator[Outcome[T, R]]:
    """Run a function on each task, each in one of a few processes; yield outcomes as they come.

    Args:
        function: of the top level of a module, so that another process can import it.
        tasks: values that can be pickled.
        processes: how many run at a time.
        seconds_per_task: after which a process is killed.
        deadline: on the clock of `time.monotonic`: no task is started after it. Those that were
            not are not yielded.
    """
    waiting = list(tasks)[::-1]
    workers: list[_Worker[T, R]] = []
    try:
        while waiting or any(worker.task is not None for worker in workers):
            if deadline is not None and time.monotonic() > deadline:
                waiting = []
            idle = [worker for worker in workers if worker.task is None]
            while waiting and (idle or len(workers) < processes):
                if not idle:
                    idle.append(_Worker(function))
                    workers += idle
                idle.pop().start(waiting.pop())
            busy = [worker for worker in workers if worker.task is not None]
            if busy:
                wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                # Asked anew: whoever consumes the outcomes may have taken their time meanwhile.
                outcome = worker.outcome(worker.connection.poll(), seconds_per_task)
                if outcome is not None:
                    if not worker.is_alive:
                        workers.remove(worker)
                    yield outcome
    finally:
        for worker in workers:
            worker.stop()


class Isolated(Generic[T, R]):
    """Runs a function on one task after the other, in a process that outlives all but a crash.

    Args:
        function: of the top level of a module, so that another process can import it.
        seconds_per_task: after which the process is killed.
    """

    def __init__(self, function: Callable[[T, Note], R], seconds_per_task: float = 300.0) -> None:
        self._function = function
        self._seconds_per_task = seconds_per_task
        self._worker: _Worker[T, R] | None = None

    def run(self, task: T) -> Outcome[T, R]:
        """Run one task, in a new process if the last one was lost."""
        worker = self._worker or _Worker(self._function)
        self._worker = worker
        worker.start(task)
        outcome: Outcome[T, R] | None = None
        while outcome is None:
            is_ready = bool(wait([worker.connection], timeout=1.0))
            outcome = worker.outcome(is_ready, self._seconds_per_task)
        if not worker.is_alive:
            self._worker = None
        return outcome

    def close(self) -> None:
        """Stop the process."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


class _Worker(Generic[T, R]):
    """One process, and the task that it has."""

    def __init__(self, function: Callable[[T, Note], R]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self._note = spawn.RawArray("c", _NOTE_BYTES)
        # What a dying process says of it goes to its stderr.
        self._last_words = tempfile.NamedTemporaryFile(  # noqa: SIM115 (lives with the process)
            prefix="verify-", suffix=".log"
        )
        self._process = spawn.Process(
            target=_serve, args=(function, theirs, self._note, self._last_words.name), daemon=True
        )
        self._process.start()
        theirs.close()
        self._is_ready = False
        self._since = time.monotonic()
        self.task: T | None = None

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def start(self, task: T) -> None:
        self.task, self._since = task, time.monotonic()
        self._note.value = b""
        with suppress(OSError):  # it died meanwhile, which its outcome will say
            self.connection.send(task)

    def outcome(self, is_ready: bool, most: float) -> Outcome[T, R] | None:
        """Say what became of the task, or None while it runs."""
        assert self.task is not None
        task, seconds = self.task, time.monotonic() - self._since
        if is_ready:
            try:
                state, value = self.connection.recv()
            except (EOFError, OSError):
                self.task = None
                self._process.join()
                return Outcome(task, "died", None, self._how_it_died(), seconds)
            if state == "ready":
                self._is_ready, self._since = True, time.monotonic()
                return None
            self.task = None
            if state == "done":
                return Outcome(task, "done", value, "", seconds)
            return Outcome(task, "raised", None, value, seconds)
        if seconds > (most if self._is_ready else _STARTING_SECONDS):
            self.task = None
            self.stop()
            message = f"it was stopped after {seconds:.0f} s, in the middle of: {self._doing()}"
            return Outcome(task, "late", None, message, seconds)
        return None

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join(_CLOSING_SECONDS)
        self._last_words.close()

    def _doing(self) -> str:
        return self._note.value.decode(errors="replace") or "getting ready"

    def _how_it_died(self) -> str:
        code = self._process.exitcode or 0
        how = f"exit code {code}"
        if code < 0:
            with suppress(ValueError):
                how = signal.Signals(-code).name
        with open(self._last_words.name, errors="replace") as file:
            written = " ".join(file.read().split())[-_TAIL:]
        words = f"; it said: {written}" if written else ""
        return f"the process died ({how}) in the middle of: {self._doing()}{words}"


def _serve(
    function: Callable[[Any, Note], Any], connection: Connection, note: Any, last_words: str
) -> None:
    """Run tasks until the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    with open(last_words, "a") as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 (until the process ends)
    logging.disable(logging.CRITICAL)  # what torch logs of calls that are meant to fail

    def write(text: str) -> None:
        note.value = text.encode()[: _NOTE_BYTES - 1]

    connection.send(("ready", None))
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        os.ftruncate(2, 0)
        try:
            answer = ("done", function(task, write))
        except Exception:
            answer = ("raised", traceback.format_exc())
        connection.send(answer)
