"""Which line of the user's program a call comes from, in the forward pass and in the backward."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FrameType

import torch

from dtensor_registry import errors
from dtensor_registry.rules.strategy import SourceLine

_HOST = Path(errors.__file__).parent
_LIBRARIES = (f"{Path(str(torch.__file__)).parent}/", f"{_HOST}/")
_STDLIB = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
_ENGINE = "_engine_run_backward"
"""The function of torch that runs the backward pass; what is above it was called by the engine."""


_MAX_KEPT = 100_000
"""Nodes whose lines are remembered; more than one step has."""


class Lines:
    """Finds lines of one thread's program, and remembers which one each autograd node is from."""

    def __init__(self) -> None:
        self._forward: dict[int, SourceLine] = {}

    def here(self) -> tuple[SourceLine | None, bool]:
        """Find the line that makes the current call.

        Returns:
            The line, and whether the call is part of its backward pass. An op of the backward
            pass is laid to the line of the forward pass whose gradient it computes.
        """
        line, by_engine = _innermost(inspect.currentframe())
        if by_engine:
            node = torch._C._current_autograd_node()
            number = -1 if node is None else node._sequence_nr()
            return self._forward.get(number, line), True
        if line is not None and torch.is_grad_enabled():
            # The node of the call exists already: autograd makes it before it calls the kernel.
            self._forward.setdefault(torch._C._autograd._get_sequence_nr() - 1, line)
            if len(self._forward) > _MAX_KEPT:
                del self._forward[next(iter(self._forward))]
        return line, False


def _innermost(frame: FrameType | None) -> tuple[SourceLine | None, bool]:
    """Find the innermost line of the program, and whether the engine ran in between."""
    by_engine = False
    while frame is not None:
        code = frame.f_code
        if code.co_name == _ENGINE:
            by_engine = True
        elif is_program(code.co_filename):
            return SourceLine(code.co_filename, frame.f_lineno), by_engine
        frame = frame.f_back
    return None, by_engine


def stacklevel() -> int:
    """Count the frames from the caller out to the user's line, as `warnings.warn` does."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and not is_program(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    return 1 if frame is None else level


@lru_cache(maxsize=4096)
def is_program(file: str) -> bool:
    """Say whether a file belongs to the user: not to torch, the host, or Python itself.

    >>> is_program(torch.__file__), is_program("/home/me/train.py")
    (False, True)
    """
    if file.startswith("<") or file.startswith(_LIBRARIES):
        return False
    return file.startswith(_INSTALLED) or not file.startswith(_STDLIB)
