"""A plugin's rule as it sits in torch's tables: checked each time it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import nan
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor.placement_types import _MaskPartial

from dtensor_registry.discovery import Origin
from dtensor_registry.errors import RuleError
from dtensor_registry.placements import Placement, Shard, ShardingPlaceholder, StridedShard
from dtensor_registry.planner import Grouped, grouped_dims
from dtensor_registry.rules import Rule, tensor_inputs, well_formed
from dtensor_registry.rules.strategy import MAX_ROWS
from dtensor_registry.torch_runtime.conversion import row_from_rule, row_to_torch
from dtensor_registry.torch_runtime.schema import facts

_SHOWN = 100
"""Entries of a row that a message shows."""


@dataclass(frozen=True, slots=True, eq=False)
class InstalledRule:
    """A rule, whose it is, and torch's single-dim signature.

    Calling it is what torch's own expansion and other tools do; the host's expansion asks
    `rows`. Both check what the rule returns. torch's expansion knows nothing of dims that hold
    groups, so a row that shards one is not for it.

    Attributes:
        rule: the plugin's function or template.
        origin: whose it is.
        allow_uneven_sharding: see `SingleDimStrategy`.
        fallback: the name of the fallback whose rule this is, or None for an op's own rule.
        max_bytes: bytes that one call may move, or None.
        allow_empty_pieces: see `SingleDimStrategy`.
        local_arguments: likewise.
        random: likewise.
        max_rows: rows that it may give for one call.
        decomposes: whether a call that the rule has no way to run is left to torch's
            decomposition of the op, which is all that torch itself has for it.
    """

    rule: Rule
    origin: Origin
    allow_uneven_sharding: bool = False
    fallback: str | None = None
    max_bytes: int | None = None
    allow_empty_pieces: bool = True
    local_arguments: Any = None
    random: Callable[[tuple[Any, ...], dict[str, Any]], bool] | None = None
    max_rows: int = MAX_ROWS
    decomposes: bool = False

    def __call__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[list[Any]]:
        """Ask the plugin's rule."""
        rows = self.rows(op, args, kwargs)
        grouped = grouped_dims(rows)
        return [row_to_torch(row) for row in rows if not any(_shards(row, dim) for dim in grouped)]

    def rows(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Placement | ShardingPlaceholder | None, ...]]:
        """Ask the rule and hold its answer against the op's schema and the inputs' ranks.

        Raises:
            RuleError: if the rule raises, or returns something that is no set of rows.
        """
        rows = self._asked(op, args, kwargs)
        ranks = [len(tensor.shape) for tensor in tensor_inputs(args, kwargs)]
        outputs = self._outputs(op, rows, len(ranks))
        read: list[tuple[Placement | ShardingPlaceholder | None, ...]] = []
        for row in rows:
            try:
                problem = well_formed.problem(row, outputs, ranks) or _lone_mask(row, outputs)
                if problem is None:
                    read.append(row_from_rule(row))
            except Exception as error:  # an entry may be anything, with code of its own
                problem = f"reading a row raised {_said(error)}"
            if problem is not None:
                raise self._wrong(op, problem, row)
        return read

    def _asked(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Take down what the rule answers, once and up to a bound: it may have no end."""
        try:
            returned = self.rule(op, _as_cached(op, args), dict(kwargs))
            is_list = isinstance(returned, Sequence) and not isinstance(returned, (str, bytes))
            rows = [_taken(row) for row in islice(returned, self.max_rows + 1)] if is_list else []
        except (Exception, SystemExit) as error:
            raise self._wrong(op, f"it raised {_said(error)}") from error
        if not is_list:
            raise self._wrong(op, f"it returned a {type(returned).__name__}, not a list of rows")
        if len(rows) > self.max_rows:
            problem = f"it returned more than {self.max_rows} rows, which is setting 'max_rows'"
            raise self._wrong(op, problem)
        return rows

    def draws(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Say whether a call draws random numbers.

        Raises:
            RuleError: if the plugin's predicate raises.
        """
        if self.random is None:
            return facts(op).random
        try:
            return bool(self.random(args, dict(kwargs)))
        except Exception as error:
            problem = f"its random() raised {_said(error)}"
            raise self._wrong(op, problem) from error

    def _outputs(self, op: OpOverload, rows: Sequence[Any], inputs: int) -> int:
        """Count the outputs in a row; a list output may be given once, or element by element."""
        known = facts(op)
        if known.list_output and rows and isinstance(rows[0], (list, tuple)):
            return max(len(rows[0]) - inputs, 1)
        return known.tensor_outputs

    def _wrong(self, op: OpOverload, problem: str, row: Any = None) -> RuleError:
        shown = None if row is None else _show(row)
        return RuleError(str(op), self.origin.plugin, str(self.origin), problem, shown)


def _as_cached(op: OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Hide numbers that stand where an op's schema has a tensor, as in `x + 1`.

    torch makes tensors of them, and the key of its cache does not hold what these are worth. A
    rule that saw the number would be right about it alone, and be used for all others.
    """
    declared = facts(op).parameters
    return tuple(
        nan
        if argument.is_tensor and not argument.is_list and isinstance(value, (int, float, complex))
        else value
        for argument, value in zip(declared, args, strict=False)
    )


def _shards(row: Sequence[Placement | ShardingPlaceholder | None], dim: Grouped) -> bool:
    entry = row[dim.position]
    if isinstance(entry, ShardingPlaceholder):
        return entry.dim == dim.tensor_dim
    return isinstance(entry, (Shard, StridedShard)) and entry.tensor_dim == dim.tensor_dim


def _taken(row: Any) -> Any:
    """Copy a row out of a list of the rule's own kind, by Python's code: theirs may not end."""
    if type(row) in (list, tuple) or not isinstance(row, (list, tuple)):
        return row
    return [*(list.__iter__(row) if isinstance(row, list) else tuple.__iter__(row))]


def _lone_mask(row: Sequence[Any], outputs: int) -> str | None:
    """Say that an output waits for a mask which moving an input would make, and none does."""
    for at, entry in enumerate(row[:outputs]):
        if isinstance(entry, _MaskPartial) and not any(entry is other for other in row[outputs:]):
            return (
                f"output {at} has {entry}, whose mask is made when an input is moved to the very"
                " same object; no input has it"
            )
    return None


def _said(error: BaseException) -> str:
    """Show an error of other people's code, whose own text may raise."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _show(row: Any) -> str:
    try:
        if not isinstance(row, (list, tuple)):
            return repr(row)
        shown = [entry if isinstance(entry, str) else str(entry) for entry in row[:_SHOWN]]
    except Exception:
        return f"a {type(row).__name__} that cannot be shown"
    return f"[{', '.join(shown)}{', ...' if len(row) > _SHOWN else ''}]"


@dataclass(frozen=True, slots=True, eq=False)
class TorchRule:
    """One of torch's own single-dim rules, asked as it is.

    Attributes:
        func: torch's function, `(op, args, kwargs) -> rows`.
        allow_uneven_sharding: as torch registered it.
    """

    func: Any
    allow_uneven_sharding: bool

    @property
    def fallback(self) -> None:
        """torch's rules are no fallbacks."""
        return None

    @property
    def allow_empty_pieces(self) -> bool:
        """torch's rules say nothing of ranks that hold nothing."""
        return True

    def rows(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Placement | ShardingPlaceholder | None, ...]]:
        """Ask torch's rule."""
        return [row_from_rule(row) for row in self.func(op, args, kwargs)]


@cache
def torch_rule(func: Any, allow_uneven_sharding: bool) -> TorchRule:
    """Give the one value that stands for a rule of torch's, so that what it answers can be kept."""
    return TorchRule(func, allow_uneven_sharding)
