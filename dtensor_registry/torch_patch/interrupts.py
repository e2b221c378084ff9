"""Ctrl-C cannot cut a change of torch's tables short: it waits until they are whole again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupts:
    """A block that SIGINT does not cut short; what came meanwhile is delivered at its end.

    Signals reach the main thread only: in another thread there is nothing to hold back.

    Attributes:
        came: whether one came since the block began.
    """

    def __init__(self) -> None:
        self.came = False
        self._handler: Callable[[int, FrameType | None], Any] | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            if self.came:
                handler(signal.SIGINT, None)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.came = True
