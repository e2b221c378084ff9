"""Run a user's program as rank 0 of ranks that are not there, under an audit."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from dtensor_registry.auditing.record import Audit
from dtensor_registry.auditing.rows import AuditRow
from dtensor_registry.errors import SettingsError
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_fake.tensors import fake_tensors, results_of_whole
from dtensor_registry.torch_fake.world import fake_world
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.watch import Watch
from dtensor_registry.torch_runtime.source_lines import is_program

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ProgramAudit:
    """What a program did on ranks that are not there.

    Attributes:
        rows: as in `Audit`.
        stopped: why the program did not come to its end, and where; None if it did.
        made_up: lines that read values which had to be made up, and how often.
        is_hosted: whether rules of the registry were in force at some time.
    """

    rows: tuple[AuditRow, ...]
    stopped: str | None
    made_up: dict[str, int]
    is_hosted: bool

    @property
    def lacking(self) -> tuple[AuditRow, ...]:
        """The ops that nobody has a rule for."""
        return tuple(row for row in self.rows if row.kind == "none")


def audit_program(target: str, arguments: Sequence[str], ranks: int) -> ProgramAudit:
    """Run a program on fake tensors and fake ranks, and record its DTensor ops.

    The program's own output goes to stderr. An op without a rule does not stop it: the op's
    results are made up as if all its tensors were whole.

    Args:
        target: a file, or `module:function`; the function is called without arguments.
        arguments: what the program finds in `sys.argv` after its own name.
        ranks: size of the world.

    Raises:
        SettingsError: if there is no such program.
        InstallError: if this process is part of a process group already.
    """
    prepare = _find(target)
    made_up: Counter[str] = Counter()
    record = Audit()
    watch = Watch(record.enter, results_of_whole)

    def note() -> None:
        made_up[str(watch.lines.here()[0] or "?")] += 1

    with (
        fake_world(ranks),
        _installations_ended(),
        _as_main(target, arguments),
        redirect_stdout(sys.stderr),
    ):
        run = prepare()
        with fake_tensors(lambda: watch.is_inside_op, note), watch:
            stopped = _reason_to_stop(run)
    return ProgramAudit(record.rows, stopped, dict(sorted(made_up.items())), watch.is_hosted)


def _find(target: str) -> Callable[[], Run]:
    """Find a program; what comes back imports what it needs, and gives what runs it."""
    if target.endswith(".py") or os.sep in target:
        if not Path(target).is_file():
            raise SettingsError(f"{target}: there is no such file")
        return lambda: lambda: runpy.run_path(target, run_name="__main__")
    name, colon, function = target.partition(":")
    if not (colon and name and function):
        raise SettingsError(f"{target}: name a file, such as train.py, or module:function")
    return lambda: _function(name, function)


def _function(name: str, function: str) -> Run:
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks another
        raise SettingsError(f"{name}:{function}: there is no module {error.name}") from error
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SettingsError(f"{name}:{function}: module {name} has no function {function}")
    run: Run = found
    return run


@contextmanager
def _installations_ended() -> Iterator[None]:
    """Take rules out that the program put in force and left there."""
    before = LOAN.layers
    try:
        yield
    finally:
        for layer in reversed(LOAN.layers):
            if layer not in before:
                LOAN.remove(layer)


@contextmanager
def _as_main(target: str, arguments: Sequence[str]) -> Iterator[None]:
    """Show the program the command line and the import path that it has when it is run alone."""
    is_file = target.endswith(".py") or os.sep in target
    folder = Path(target).resolve().parent if is_file else Path.cwd()
    argv = [target if is_file else target.partition(":")[0], *arguments]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
    ):
        yield


def _reason_to_stop(run: Run) -> str | None:
    """Run a program, and say why it ended before its end, if it did."""
    try:
        run()
    except SystemExit as error:
        return None if error.code in (None, 0) else f"it exited with {error.code}"
    except Exception as error:
        lines = [
            SourceLine(frame.filename, frame.lineno or 0)
            for frame in traceback.extract_tb(error.__traceback__)
            if is_program(frame.filename)
        ]
        where = f"{lines[-1]}: " if lines else ""
        return f"{where}{type(error).__name__}: {error}"
    return None
