"""Faults that a rule may have, planted in the rules that our plugins really contribute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dtensor_registry import REPLICATE, Partial, SchemaInfo, ShardingPlaceholder, is_tensor
from dtensor_registry.rules import tensor_inputs
from dtensor_registry.rules.metadata import TensorMeta, fill
from dtensor_registry_kit.verification.targets import Target

KEYWORDS = "no keyword tensor in the key"
Row: TypeAlias = list[Any]
Change: TypeAlias = Callable[[Row, int, "Asked"], Row | None]
"""`(row, number of outputs, call) -> another row`, or None where the fault has no place."""


@dataclass(frozen=True)
class Asked:
    """What a rule was asked."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> tuple[Any, ...]:
        return tensor_inputs(self.args, self.kwargs)


@dataclass(frozen=True)
class Fault:
    """One fault in one rule.

    Attributes:
        kind: what was done.
        target: the rule as it was.
        rule: the rule with the fault.
        schema_info: the author's, or a narrower one.
    """

    kind: str
    target: Target
    rule: Any
    schema_info: Any

    def __str__(self) -> str:
        return f"{self.kind}: {self.target.name}"


def faults_of(target: Target) -> Iterator[Fault]:
    """Plant every fault that there is in one rule; some have no place in it, and change nothing."""
    for kind, change in CHANGES.items():
        yield Fault(kind, target, _changed(target.rule, change), target.schema_info)
    for kind, added in ADDITIONS.items():
        yield Fault(kind, target, _with_row(target.rule, added), target.schema_info)
    for kind, blind in BLINDNESSES.items():
        yield Fault(kind, target, _blind(target.rule, blind), target.schema_info)
    narrow = SchemaInfo(static_argnum=100, static_kwargkey=())
    yield Fault("no argument in the key", target, target.rule, narrow)
    unkeyed = SchemaInfo(static_argnum=0, static_kwargkey=None)
    yield Fault(KEYWORDS, target, target.rule, unkeyed)
    yield Fault("raises for vectors", target, _raising(target.rule), target.schema_info)


# Faults in the rows that a rule offers.


def _cut(row: Row) -> int | None:
    """Where the first shard of a row is."""
    return next((i for i, entry in enumerate(row) if isinstance(entry, ShardingPlaceholder)), None)


def _partials(row: Row) -> list[int]:
    return [i for i, entry in enumerate(row) if isinstance(entry, Partial)]


def swap_output_and_input(row: Row, outputs: int, asked: Asked) -> Row | None:
    """The first output and the first input that differ change places."""
    for at in range(outputs, len(row)):
        if row[at] != row[0]:
            return [row[at], *row[1:at], row[0], *row[at + 1 :]]
    return None


def swap_inputs(row: Row, outputs: int, asked: Asked) -> Row | None:
    """The first two inputs that differ change places."""
    for at in range(outputs + 1, len(row)):
        if row[at] != row[outputs]:
            return [*row[:outputs], row[at], *row[outputs + 1 : at], row[outputs], *row[at + 1 :]]
    return None


def _shift(row: Row, at: int, asked: Asked, by: int, outputs: int) -> Row | None:
    entry = row[at]
    if not isinstance(entry, ShardingPlaceholder):
        return None
    rank = (
        len(asked.tensors[at - outputs].shape)
        if at >= outputs
        else max((len(tensor.shape) for tensor in asked.tensors), default=0)
    )
    if rank < 2:
        return None
    return [*row[:at], ShardingPlaceholder((entry.dim + by) % rank), *row[at + 1 :]]


def shift_output_dim(row: Row, outputs: int, asked: Asked) -> Row | None:
    """The first output is said to be cut on the next dim."""
    return _shift(row, 0, asked, 1, outputs)


def shift_input_dim(row: Row, outputs: int, asked: Asked) -> Row | None:
    """The first input that is cut is cut on the dim before."""
    for at in range(outputs, len(row)):
        shifted = _shift(row, at, asked, -1, outputs)
        if shifted is not None:
            return shifted
    return None


def negative_dim(row: Row, outputs: int, asked: Asked) -> Row | None:
    """A shard is counted from the back."""
    at = _cut(row[outputs:])
    if at is None:
        return None
    entry, rank = row[outputs + at], len(asked.tensors[at].shape)
    return [*row[: outputs + at], ShardingPlaceholder(entry.dim - rank), *row[outputs + at + 1 :]]


def dim_beyond_rank(row: Row, outputs: int, asked: Asked) -> Row | None:
    """A shard is on a dim that the input has not."""
    at = _cut(row[outputs:])
    if at is None:
        return None
    rank = len(asked.tensors[at].shape)
    return [*row[: outputs + at], ShardingPlaceholder(rank), *row[outputs + at + 1 :]]


def _of_kind(kind: str, *, where: str) -> Change:
    def change(row: Row, outputs: int, asked: Asked) -> Row | None:
        places = [at for at in _partials(row) if where == "all" or at < outputs]
        if not places or not any(row[at].reduce_op != kind for at in places):
            return None
        return [Partial(kind) if at in places else entry for at, entry in enumerate(row)]

    return change


def output_is_whole(row: Row, outputs: int, asked: Asked) -> Row | None:
    """What each rank has a part of is said to be the whole."""
    return [REPLICATE, *row[1:]] if row[0] != REPLICATE else None


def first_cut_input_is_whole(row: Row, outputs: int, asked: Asked) -> Row | None:
    """An input is not cut where the output is."""
    at = _cut(row[outputs:])
    return None if at is None else [*row[: outputs + at], REPLICATE, *row[outputs + at + 1 :]]


def whole_input_is_partial(row: Row, outputs: int, asked: Asked) -> Row | None:
    """A row that passes a partial takes one more partial input."""
    if not _partials(row):
        return None
    for at in range(outputs, len(row)):
        if row[at] == REPLICATE:
            return [*row[:at], Partial("sum"), *row[at + 1 :]]
    return None


def partial_input_is_whole(row: Row, outputs: int, asked: Asked) -> Row | None:
    """A row that needs several partial inputs takes one of them whole."""
    places = [at for at in _partials(row) if at >= outputs]
    if len(places) < 2:
        return None
    return [*row[: places[-1]], REPLICATE, *row[places[-1] + 1 :]]


def last_entry_is_missing(row: Row, outputs: int, asked: Asked) -> Row | None:
    """The row is one entry too short."""
    return row[:-1]


def entries_are_strings(row: Row, outputs: int, asked: Asked) -> Row | None:
    """The row is made of strings."""
    return [str(entry) for entry in row]


CHANGES: dict[str, Change] = {
    "output and input swapped": swap_output_and_input,
    "inputs swapped": swap_inputs,
    "output dim shifted": shift_output_dim,
    "input dim shifted": shift_input_dim,
    "dim counted from the back": negative_dim,
    "dim beyond the rank": dim_beyond_rank,
    "P(max) in place of a sum": _of_kind("max", where="all"),
    "P(product) in place of a sum": _of_kind("product", where="all"),
    "output P(avg)": _of_kind("avg", where="outputs"),
    "output P(min)": _of_kind("min", where="outputs"),
    "output said to be whole": output_is_whole,
    "cut input taken whole": first_cut_input_is_whole,
    "one more input partial": whole_input_is_partial,
    "partial input taken whole": partial_input_is_whole,
    "row one entry short": last_entry_is_missing,
    "row of strings": entries_are_strings,
}


def _changed(rule: Any, change: Change) -> Any:
    """A rule in which the first row that can have the fault has it."""

    def faulty(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
        asked = Asked(op, args, kwargs)
        rows = [list(row) for row in rule(op, args, kwargs)]
        for at, row in enumerate(rows):
            changed = change(row, len(row) - len(asked.tensors), asked)
            if changed is not None:
                return [*rows[:at], changed, *rows[at + 1 :]]
        return rows

    return faulty


# Rows too many.


def _all_partial(kind: str) -> Callable[[int], Row]:
    return lambda width: [Partial(kind)] * width


ADDITIONS: dict[str, Callable[[int], Row]] = {
    "P(sum) passed everywhere": _all_partial("sum"),
    "P(avg) passed everywhere": _all_partial("avg"),
    "P(max) passed everywhere": _all_partial("max"),
}


def _with_row(rule: Any, added: Callable[[int], Row]) -> Any:
    def faulty(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
        rows = [list(row) for row in rule(op, args, kwargs)]
        if not rows:
            return rows
        row = added(len(rows[0]))
        return rows if row in rows else [*rows, row]

    return faulty


# Rules that do not look at something.


def _same_shapes(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Blind to broadcasting: every tensor has the shape of the largest, as far as it has dims."""
    tensors = tensor_inputs(args, kwargs)
    largest = max(tensors, key=lambda t: (len(t.shape), sum(t.shape)), default=None)
    seen = [
        TensorMeta(tuple(largest.shape)[len(largest.shape) - len(t.shape) :], t.stride, t.dtype)
        for t in tensors
    ]
    return op, *fill(args, kwargs, seen)


def _no_dtypes(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Blind to dtypes: all tensors hold real numbers."""
    seen = [TensorMeta(t.shape, t.stride, None) for t in tensor_inputs(args, kwargs)]
    return op, *fill(args, kwargs, seen)


def _no_numbers(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Blind to numbers: all are zero."""

    def zero(value: Any) -> Any:
        return 0 if isinstance(value, (bool, int, float, complex)) else value

    return op, tuple(map(zero, args)), {name: zero(value) for name, value in kwargs.items()}


def _no_out(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Blind to what is given by keyword: to `out`, above all."""
    return op, args, {name: value for name, value in kwargs.items() if not is_tensor(value)}


def _no_op(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Blind to which op is asked about, and so to whether it writes in place."""
    return "aten.some.default", args, kwargs


BLINDNESSES: dict[str, Callable[[Any, Any, Any], tuple[Any, Any, Any]]] = {
    "blind to sizes of 1": _same_shapes,
    "blind to dtypes": _no_dtypes,
    "blind to numbers": _no_numbers,
    "blind to out": _no_out,
    "blind to writing in place": _no_op,
}


def _blind(rule: Any, blind: Callable[[Any, Any, Any], tuple[Any, Any, Any]]) -> Any:
    def faulty(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Row]:
        rows: Sequence[Row] = rule(*blind(op, args, kwargs))
        return rows

    return faulty


def _raising(rule: Any) -> Any:
    def faulty(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Row]:
        tensors = tensor_inputs(args, kwargs)
        if any(len(tensor.shape) == 1 for tensor in tensors):
            raise KeyError("vector")
        rows: Sequence[Row] = rule(op, args, kwargs)
        return rows

    return faulty
