"""Watching a block: every DTensor op that runs in it, who decided it, and what it moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from dtensor_registry.placements import show_placements
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.owner import NOBODY, Kind, owner_and_kind
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER, has_rule
from dtensor_registry.torch_runtime.collectives import bytes_put_in, collective
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator
from dtensor_registry.torch_runtime.execute import waits_for_shapes
from dtensor_registry.torch_runtime.source_lines import Lines

StandIn = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""Makes up the results of an op that nobody has a rule for."""

EXPLICIT = "(redistribute)"
"""What stands for the op where a collective runs outside any op."""

PROGRAM = "the program"
"""Who decides such a collective."""


@dataclass(slots=True)
class OpRun:
    """One run of an op.

    Attributes:
        op: the overload, or `EXPLICIT` for a collective outside any op.
        line: the line of the program that made the call; None if none is on the stack.
        backward: whether the call is part of the backward pass of that line.
        decided_by: see `owner`.
        kind: what kind of party that is.
        choice: `outputs <- inputs`, one tensor per `;`.
        moved: how many inputs were redistributed, by `from -> to`.
        collectives: how many of each kind ran.
        bytes: bytes that this rank put into them.
        reason: why nobody decides, in torch's or the fallbacks' words.
    """

    op: str
    line: SourceLine | None
    backward: bool
    decided_by: str = PROGRAM
    kind: Kind = "program"
    choice: str = ""
    moved: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    reason: str = ""


Receiver = Callable[[OpRun], None]


@contextmanager
def watching(receive: Receiver) -> Iterator[None]:
    """Tell of every DTensor op that runs in the block, on this rank and thread.

    It slows the block down. Blocks may be nested.

    Args:
        receive: is given each op when it has ended.
    """
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Watch):
            # Two in a row would hide the ops from the outer one.
            mode.receivers.append(receive)
            try:
                yield
            finally:
                mode.receivers.remove(receive)
            return
    with Watch(receive):
        yield


@dataclass(slots=True)
class _Running:
    """A call that has begun."""

    op: OpOverload
    run: OpRun
    inputs: str = ""
    restarted: bool = False


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees all ops of a thread, and tells of those on DTensors.

    Args:
        receive: is given each op when it has ended.
        stand_in: what makes up results of an op without a rule, which is then told as decided
            by nobody; None lets the op fail, as it does without a watch.

    Attributes:
        receivers: those that are told.
        lines: finds the lines that calls come from.
        is_hosted: whether rules of the registry were in force when an op ended.
    """

    def __init__(self, receive: Receiver, stand_in: StandIn | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.receivers = [receive]
        self.lines = Lines()
        self.is_hosted = False
        self._stand_in = stand_in
        self._running: list[_Running] = []
        self._passing = False

    @property
    def is_inside_op(self) -> bool:
        """Whether a DTensor op is running."""
        return bool(self._running)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not any(issubclass(kind, DTensor) for kind in types):
            self._count_collective(func, args)
            return func(*args, **kwargs)
        if self._passing:
            # The call that we re-issued below: let DTensor run it, under this mode.
            self._passing = False
            return NotImplemented
        if self._running and self._running[-1].op is func:
            # The host bound a rule to the op and started it over: this call replaces that one.
            self._running[-1].restarted = True
        mine = _Running(func, OpRun(str(func), *self.lines.here()))
        reason: str | None = None
        self._running.append(mine)
        try:
            _read_choice(mine, args, kwargs)
            self._passing = True
            with self:
                out = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if self._stand_in is None or mine.restarted or not _lacks_rule(func, error):
                raise
            out, reason = self._stand_in(func, args, kwargs), str(error).partition("\n")[0]
        finally:
            self._passing = False
            self._running.pop()
        if not mine.restarted:
            # Only now: an op that is bound late had no owner before it ran.
            self._tell(mine, out, reason)
        return out

    def _tell(self, ended: _Running, out: Any, reason: str | None) -> None:
        self.is_hosted |= bool(LOAN.layers)
        run = ended.run
        run.decided_by, run.kind = owner_and_kind(ended.op) if reason is None else (NOBODY, "none")
        run.choice = f"{_show(out)} <- {ended.inputs}"
        run.reason = reason or ""
        for receive in self.receivers:
            receive(run)

    def _count_collective(self, func: Any, args: tuple[Any, ...]) -> None:
        name = collective(func)
        if name is None:
            return
        run = self._running[-1].run if self._running else OpRun(EXPLICIT, *self.lines.here())
        run.collectives[name] += 1
        run.bytes += bytes_put_in(func, args)
        if not self._running:
            for receive in self.receivers:
                receive(run)


def _lacks_rule(func: OpOverload, error: Exception) -> bool:
    """Say whether a call failed because nobody has a rule for the op."""
    if has_rule(func) or LEDGER.original(HANDLERS, func) is not None:
        return False
    return isinstance(error, NotImplementedError) or waits_for_shapes(error)


def _read_choice(running: _Running, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Ask the propagator, once more, which placements it wants the inputs in."""
    given: Any = (args, kwargs)
    if running.op not in dispatcher()._custom_op_handlers:
        try:
            schema = dispatcher().unwrap_to_op_info(running.op, args, kwargs).schema
            answer = propagator().propagate_op_sharding(schema)
        except (NotImplementedError, RuntimeError):
            pass  # the op itself will say so, or run decomposed; show what came in
        else:
            wanted = answer.redistribute_schema
            if wanted is not None:
                before, given = (
                    (asked.args_schema, asked.kwargs_schema) for asked in (schema, wanted)
                )
                if answer.needs_redistribute:
                    running.run.moved.update(
                        f"{old} -> {new}"
                        for old, new in zip(_shown(before), _shown(given), strict=False)
                        if old != new
                    )
    running.inputs = _show(given)


def _show(values: Any) -> str:
    return "; ".join(_shown(values)) or "-"


def _shown(values: Any) -> list[str]:
    shown = []
    for leaf in tree_leaves(values):
        spec = leaf._spec if isinstance(leaf, DTensor) else leaf
        if isinstance(spec, DTensorSpec):
            shown.append(show_placements(placements_from_torch(spec.placements)))
    return shown
