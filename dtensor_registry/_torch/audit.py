"""What ran: every DTensor op of a block, who decided it, and what it moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dtensor_registry._torch.convert import placements_from_torch
from dtensor_registry._torch.loan import LOAN
from dtensor_registry._torch.rule import InstalledRule
from dtensor_registry._torch.tables import HANDLERS, LEDGER, dispatcher, has_rule, propagator
from dtensor_registry.placements import show_placements

_COLLECTIVES = {
    "all_gather_into_tensor": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "shard_dim_alltoall": "all_to_all",
    "broadcast": "broadcast",
}


@dataclass(frozen=True, slots=True)
class AuditRow:
    """All calls of one op that were decided by one party.

    Attributes:
        op: the overload.
        calls: how many.
        decided_by: a plugin, `torch`, `fallback <name>`, `decomposition`, `handler`, or `the
            program` for collectives outside any op, which stand under `(redistribute)`.
        placements: the distinct choices, as `outputs <- inputs`, one tensor per `;`.
        collectives: how many of each kind the calls needed.
        bytes: bytes that this rank put into them.
    """

    op: str
    calls: int
    decided_by: str
    placements: tuple[str, ...]
    collectives: Mapping[str, int]
    bytes: int


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    placements: dict[str, None] = field(default_factory=dict)
    collectives: dict[str, int] = field(default_factory=dict)
    bytes: int = 0


@dataclass(slots=True)
class _Running:
    """A call that has begun."""

    op: OpOverload
    collectives: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    restarted: bool = False


class Audit:
    """The record of a block; complete when the block has ended."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], _Tally] = {}

    @property
    def rows(self) -> tuple[AuditRow, ...]:
        """One row per op and decider, sorted by op."""
        return tuple(
            AuditRow(op, t.calls, by, tuple(t.placements), dict(t.collectives), t.bytes)
            for (op, by), t in sorted(self._tallies.items())
        )

    def __str__(self) -> str:
        return "\n".join(
            f"{row.op}  {row.calls} calls by {row.decided_by}: {' | '.join(row.placements)}"
            for row in self.rows
        )

    def tally(self, op: OpOverload) -> _Tally:
        """Find or open the tally of an op."""
        return self._tallies.setdefault((str(op), owner(op)), _Tally())

    @property
    def explicit(self) -> _Tally:
        """The tally of collectives that no op asked for: `redistribute()`, `full_tensor()`."""
        return self._tallies.setdefault(("(redistribute)", "the program"), _Tally())


def owner(op: OpOverload) -> str:
    """Say who decides an op in this process."""
    if LEDGER.original(HANDLERS, op) is not None:
        return "handler"
    found = LOAN.find(op)
    if found is not None:
        rule = getattr(found[1].rule, "func", None)
        if not isinstance(rule, InstalledRule):
            return "context"
        return rule.origin.plugin if rule.fallback is None else f"fallback {rule.fallback}"
    return "torch" if has_rule(op) else "decomposition"


@contextmanager
def audit() -> Iterator[Audit]:
    """Record every DTensor op that runs in the block, on this rank and thread.

    It slows the block down: use it to look, not to train.
    """
    record = Audit()
    with _Recorder(record):
        yield record


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, record: Audit) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record
        self._running: list[_Running] = []
        self._passing = False

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
        inputs = _chosen_inputs(func, args, kwargs)
        if self._running and self._running[-1].op is func:
            # The host bound a rule to the op and started it over: this call replaces that one.
            self._running[-1].restarted = True
        mine = _Running(func)
        self._running.append(mine)
        self._passing = True
        try:
            with self:
                out = func(*args, **kwargs)
        finally:
            self._passing = False
            self._running.pop()
        if mine.restarted:
            return out
        # Only now: an op that is bound late had no owner before it ran.
        tally = self._record.tally(func)
        tally.calls += 1
        tally.placements[f"{_show(out)} <- {inputs}"] = None
        tally.bytes += mine.bytes
        for name, count in mine.collectives.items():
            tally.collectives[name] = tally.collectives.get(name, 0) + count
        return out

    def _count_collective(self, func: Any, args: tuple[Any, ...]) -> None:
        name = _COLLECTIVES.get(func._schema.name.rpartition("::")[2])
        if name is None:
            return
        counted: _Running | _Tally
        if self._running:
            counted = self._running[-1]
        else:
            counted = self._record.explicit
            counted.calls += 1
        counted.collectives[name] = counted.collectives.get(name, 0) + 1
        counted.bytes += sum(
            leaf.numel() * leaf.element_size()
            for leaf in tree_leaves(args)
            if isinstance(leaf, torch.Tensor)
        )


def _chosen_inputs(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Ask the propagator, once more, which placements it wants the inputs in."""
    given = (args, kwargs)
    if func not in dispatcher()._custom_op_handlers:
        try:
            schema = dispatcher().unwrap_to_op_info(func, args, kwargs).schema
            answer = propagator().propagate_op_sharding(schema)
        except (NotImplementedError, RuntimeError):
            pass  # the op itself will say so, or run decomposed; show what came in
        else:
            if answer.redistribute_schema is not None:
                wanted = answer.redistribute_schema
                return _show((wanted.args_schema, wanted.kwargs_schema))
    return _show(given)


def _show(values: Any) -> str:
    shown = []
    for leaf in tree_leaves(values):
        spec = leaf._spec if isinstance(leaf, DTensor) else leaf
        if isinstance(spec, DTensorSpec):
            shown.append(show_placements(placements_from_torch(spec.placements)))
    return "; ".join(shown) or "-"
