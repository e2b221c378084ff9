"""What ran: every DTensor op of a block, who decided it, and what it moved."""

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

from dtensor_registry._torch.auditing.collectives import bytes_put_in, collective
from dtensor_registry._torch.auditing.rows import (
    AuditRow,
    Kind,
    LineRow,
    in_order,
    write_sum,
    write_table,
)
from dtensor_registry.discovery import PROGRAM as THIS_PROGRAM
from dtensor_registry.placements import show_placements
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER, has_rule
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.conversion import placements_from_torch
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator
from dtensor_registry.torch_runtime.execute import waits_for_shapes
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.source_lines import Lines

Place = tuple[SourceLine | None, bool]
"""A line of the program, and whether the call is part of its backward pass."""

StandIn = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""Makes up the results of an op that nobody has a rule for."""

NOBODY = "nobody"
EXPLICIT = "(redistribute)"
PROGRAM = "the program"


@dataclass(slots=True)
class _Tally:
    kind: Kind
    calls: int = 0
    placements: dict[str, None] = field(default_factory=dict)
    moved: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    lines: dict[Place, list[int]] = field(default_factory=dict)
    reason: str = ""

    def add(self, place: Place, calls: int, size: int) -> None:
        """Count calls from a line, and the bytes that they put into collectives."""
        self.calls += calls
        counted = self.lines.setdefault(place, [0, 0])
        counted[0] += calls
        counted[1] += size

    def row(self, op: str, decided_by: str) -> AuditRow:
        lines = [LineRow(*place, *counted) for place, counted in self.lines.items()]
        lines.sort(key=lambda line: (-line.bytes, -line.calls, str(line)))
        return AuditRow(
            op,
            self.calls,
            self.kind,
            decided_by,
            tuple(self.placements),
            dict(self.moved),
            dict(sorted(self.collectives.items())),
            sum(line.bytes for line in lines),
            tuple(lines),
            self.reason,
        )


@dataclass(slots=True)
class _Running:
    """A call that has begun."""

    op: OpOverload
    place: Place
    inputs: str = ""
    moved: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    restarted: bool = False


class Audit:
    """The record of a block; complete when the block has ended."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], _Tally] = {}

    @property
    def rows(self) -> tuple[AuditRow, ...]:
        """One row per op and decider; ops that need a rule first, then what moves most bytes."""
        return in_order([t.row(op, by) for (op, by), t in self._tallies.items() if t.calls])

    def table(self) -> str:
        """Write all rows as a table of plain text."""
        return f"{write_table(self.rows)}\n\n{write_sum(self.rows)}"

    def __str__(self) -> str:
        return self.table()

    def tally(self, op: str, decided_by: str, kind: Kind) -> _Tally:
        """Find or open the tally of an op and who decides it."""
        return self._tallies.setdefault((op, decided_by), _Tally(kind))


def owner(op: OpOverload) -> str:
    """Say who decides an op in this process."""
    return _decider(op)[0]


def _decider(op: OpOverload) -> tuple[str, Kind]:
    found = LOAN.find(op)
    if found is None and LEDGER.original(HANDLERS, op) is not None:
        return "handler", "torch"
    if found is not None:
        if found[0].program is not None:
            return THIS_PROGRAM, "plugin"
        rule = getattr(found[1].rule, "func", None)
        rule = found[1].rule if isinstance(found[1].rule, AmendedTorch) else rule
        if isinstance(rule, (CorrectedRule, AmendedTorch)):
            return rule.origin.plugin, "plugin"
        if not isinstance(rule, InstalledRule):
            return "context", "plugin"
        if rule.fallback is not None:
            return f"fallback {rule.fallback}", "fallback"
        return rule.origin.plugin, "plugin"
    return ("torch", "torch") if has_rule(op) else ("decomposition", "decomposition")


@contextmanager
def audit() -> Iterator[Audit]:
    """Record every DTensor op that runs in the block, on this rank and thread.

    It slows the block down: use it to look, not to train. Blocks may be nested.
    """
    record = Audit()
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Recorder):
            # Two recorders in a row would hide the ops from the outer one.
            mode.records.append(record)
            try:
                yield record
            finally:
                mode.records.remove(record)
            return
    with Recorder(record):
        yield record


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees all ops of a thread, and enters those on DTensors in records.

    Args:
        record: the first record.
        stand_in: what makes up results of an op without a rule, which is then entered as decided
            by nobody; None lets the op fail, as it does without an audit.

    Attributes:
        records: those that are open; an op that ends is entered in all of them.
        lines: finds the lines that calls come from.
        is_hosted: whether rules of the registry were in force when an op ended.
    """

    def __init__(self, record: Audit, stand_in: StandIn | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records = [record]
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
        mine = _Running(func, self.lines.here())
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
            self._enter(mine, out, reason)
        return out

    def _enter(self, ended: _Running, out: Any, reason: str | None) -> None:
        self.is_hosted |= bool(LOAN.layers)
        by, kind = _decider(ended.op) if reason is None else (NOBODY, "none")
        for record in self.records:
            tally = record.tally(str(ended.op), by, kind)
            tally.add(ended.place, 1, ended.bytes)
            tally.placements[f"{_show(out)} <- {ended.inputs}"] = None
            tally.moved.update(ended.moved)
            tally.collectives.update(ended.collectives)
            tally.reason = reason or ""

    def _count_collective(self, func: Any, args: tuple[Any, ...]) -> None:
        name = collective(func)
        if name is None:
            return
        size = bytes_put_in(func, args)
        if self._running:
            running = self._running[-1]
            running.collectives[name] += 1
            running.bytes += size
            return
        place = self.lines.here()
        for record in self.records:
            explicit = record.tally(EXPLICIT, PROGRAM, "program")
            explicit.add(place, 1, size)
            explicit.collectives[name] += 1


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
                    running.moved.update(
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
