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
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from dtensor_registry.placements import show_placements
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_patch.cache_invalidation import FreshSharding
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER, has_rule
from dtensor_registry.torch_runtime.collectives import bytes_put_in, collective
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.decision import Decision, Kind, recording
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator
from dtensor_registry.torch_runtime.execute import waits_for_shapes
from dtensor_registry.torch_runtime.source_lines import Lines

StandIn = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""Generates the results of an op without a rule."""

EXPLICIT = "(redistribute)"
"""What stands for the op where a collective runs outside any op."""

NOBODY = "nobody"
"""Who decides an op whose results were generated."""

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
        decision: what dispatch decided; None where nothing was to be decided.
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
    decision: Decision | None = None


Receiver = Callable[[OpRun], None]


@contextmanager
def watching(receive: Receiver) -> Iterator[None]:
    """Report every DTensor op that runs in the block, on this rank and thread.

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
    came: list[str]
    restarted: bool = False

    def note(self, decision: Decision) -> None:
        """Take down what is decided while it runs."""
        if decision.schema.op is self.op:
            self.run.decision = decision


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees all ops of a thread, and reports those on DTensors.

    Args:
        receive: is given each op when it has ended.
        stand_in: what generates the results of an op without a rule, which is then reported as
            decided by nobody; None lets the op fail, as it does without a watch.

    Attributes:
        receivers: what is called with each op that ran.
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
        self._known: dict[OpSchema, Decision] = {}

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
        mine = _Running(func, OpRun(str(func), *self.lines.here()), _shown((args, kwargs)))
        reason: str | None = None
        self._running.append(mine)
        try:
            question = _question(func, args, kwargs)
            self._passing = True
            with self, recording(mine.note):
                out = func(*args, **kwargs)
            if question is not None:
                self._remember(mine.run, question)
        except (NotImplementedError, RuntimeError) as error:
            if self._stand_in is None or mine.restarted or not _lacks_rule(func, error):
                raise
            out, reason = self._stand_in(func, args, kwargs), str(error).partition("\n")[0]
        finally:
            self._passing = False
            self._running.pop()
        if not mine.restarted:
            # Only now: an op that is bound late had no owner before it ran.
            self._report(mine, out, reason)
        return out

    def _report(self, ended: _Running, out: Any, reason: str | None) -> None:
        self.is_hosted |= bool(LOAN.layers)
        run = ended.run
        decision = run.decision
        owner = None if decision is None else decision.owner
        owner = owner or LOAN.owner(ended.op)
        run.decided_by, run.kind = (owner.name, owner.kind) if reason is None else (NOBODY, "none")
        inputs = ended.came
        if decision is not None and decision.wanted is not None:
            inputs = _shown(decision.wanted)
            run.moved.update(
                f"{old} -> {new}"
                for old, new in zip(ended.came, inputs, strict=False)
                if old != new
            )
        run.choice = f"{_show(_shown(out))} <- {_show(inputs)}"
        run.reason = reason or ""
        for receive in self.receivers:
            receive(run)

    def _remember(self, run: OpRun, question: OpSchema) -> None:
        """Find the decision of a call whose answer torch's C++ had in its cache."""
        if run.decision is None:
            known = self._known.get(question)
            run.decision = _asked_again(question) if known is None else known
        if run.decision is not None:
            self._known[question] = run.decision

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


def _question(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpSchema | None:
    """Write a call as torch's propagator is asked about it; None for one that it is not asked."""
    if op in dispatcher()._custom_op_handlers:
        return None
    try:
        schema: OpSchema = dispatcher().unwrap_to_op_info(op, args, kwargs).schema
        hash(schema)
    except (NotImplementedError, RuntimeError, TypeError):
        return None  # the op itself says so; what cannot be hashed is in no cache
    return schema


def _asked_again(question: OpSchema) -> Decision | None:
    """Ask torch's propagator about a call that was decided before it was watched.

    What torch's C++ has in its cache cannot be read.
    """
    try:
        answer = propagator().propagate_op_sharding(question)
    except (NotImplementedError, RuntimeError):
        return None  # without the host: torch took the op into parts
    if isinstance(answer, FreshSharding):
        return answer.decision
    return Decision(question, owner=LOAN.owner(question.op), answer=answer)


def _show(placements: list[str]) -> str:
    return "; ".join(placements) or "-"


def _shown(values: Any) -> list[str]:
    shown = []
    for leaf in tree_leaves(values):
        spec = leaf._spec if isinstance(leaf, DTensor) else leaf
        if isinstance(spec, DTensorSpec):
            shown.append(show_placements(placements_from_torch(spec.placements)))
    return shown
