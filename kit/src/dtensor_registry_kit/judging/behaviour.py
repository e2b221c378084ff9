"""How a rule behaves when it is asked: does it raise, change its mind, or change its arguments?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtensor_registry.placements import Partial, Replicate
from dtensor_registry.rules.metadata import TensorMeta, fill
from dtensor_registry.rules.strategy import Rule
from dtensor_registry.rules.well_formed import for_any_groups, plain, show_row
from dtensor_registry_kit.judging.findings import Finding
from dtensor_registry_kit.judging.judge import describe_error
from dtensor_registry_kit.samples.sample import Sample


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule said about one call.

    Attributes:
        sample: the call.
        rows: as returned; empty if `finding` says why there are none.
        shown: the rows, printed.
        finding: what is wrong with the answer as a whole, or None.
    """

    sample: Sample
    rows: tuple[Any, ...] = ()
    shown: tuple[str, ...] = ()
    finding: Finding | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """The rows as they are called in all calls, whatever the sizes."""
        return tuple(map(for_any_groups, self.shown))

    def with_partials(self) -> Answer:
        """Keep the rows in which something is partial."""
        kept = [
            (row, shown)
            for row, shown in zip(self.rows, self.shown, strict=True)
            if isinstance(row, (list, tuple)) and any(isinstance(plain(e), Partial) for e in row)
        ]
        return replace(
            self, rows=tuple(row for row, _ in kept), shown=tuple(shown for _, shown in kept)
        )


def described(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put metadata in the place of a call's tensors: what a rule gets to see."""
    metas = [TensorMeta(t.shape, tuple(t.stride()), t.dtype) for t in sample.inputs]
    return fill(sample.args, sample.kwargs, metas)


def query(rule: Rule, op: Any, sample: Sample) -> Answer:
    """Ask a rule for its rows; whatever it raises or returns becomes an answer."""
    args, kwargs = described(sample)
    asked = str(sample)
    try:
        rows = rule(op, args, kwargs)
        if not isinstance(rows, (list, tuple)):
            message = f"it returned {type(rows).__name__} {rows!r:.60}, not a list of rows"
            return Answer(sample, finding=Finding("malformed", message, sample=asked))
    except Exception as error:
        return Answer(sample, finding=Finding("raises", _traced(error), sample=asked))
    if (args, kwargs) != described(sample):
        message = f"after it was asked the arguments were {args}, {kwargs}"
        return Answer(sample, finding=Finding("impure", message, sample=asked))
    shown = tuple(show_row(row, len(sample.inputs)) for row in rows)
    return Answer(sample, tuple(rows), shown)


def _traced(error: Exception) -> str:
    """Quote an exception with the line that raised it."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{describe_error(error)}{place}"


def changed_mind(rule: Rule, op: Any, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Ask everything again, in another order and another state of the process.

    Random state and grad mode differ: a rule may depend on neither, nor on what it was
    asked before. All ranks must get one answer.
    """
    state = random.getstate()
    random.seed(20_11)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(20_11)
            for answer in reversed(answers):
                again = query(rule, op, answer.sample)
                if again.shown != answer.shown:
                    message = f"first {list(answer.shown)}, then {_describe(again)}"
                    yield Finding("changes", message, sample=str(answer.sample))
    finally:
        random.setstate(state)


def repeated(answer: Answer) -> Iterator[Finding]:
    """Find rows that an answer holds twice, or that need not be written."""
    seen: set[str] = set()
    for row, shown in zip(answer.rows, answer.shown, strict=True):
        message = None
        if shown in seen:
            message = "the row stands there twice"
        elif isinstance(row, (list, tuple)) and row and all(map(_is_whole, row)):
            message = "the all-Replicate row is implied for every op"
        seen.add(shown)
        if message is not None:
            yield Finding("duplicate", message, shown, sample=str(answer.sample))


def _is_whole(entry: Any) -> bool:
    return entry is None or isinstance(plain(entry), Replicate)


def missing_from_key(
    rule: Rule, op: Any, answers: Sequence[Answer], schema_info: Any
) -> Iterator[Finding]:
    """Find arguments that change the rows, but that torch's cached decisions do not depend on.

    Args:
        rule: the rule.
        op: the op.
        answers: what the rule said about each sample.
        schema_info: the author's; None means that every argument is in the key.
    """
    if schema_info is None:
        return
    static_argnum = schema_info.static_argnum
    keyed = schema_info.static_kwargkey or ()
    calls = [answer.sample for answer in answers]
    if schema_info.static_kwargkey is None:
        yield from _unkeyed_tensors(calls)
    for answer in answers:
        sample = answer.sample
        for index, value in enumerate(sample.args[:static_argnum]):
            elsewhere = [call.args[index] for call in calls if index < len(call.args)]
            for other in _alternatives(value, elsewhere):
                args = (*sample.args[:index], other, *sample.args[index + 1 :])
                yield from _compared(
                    rule, op, answer, Sample(args, sample.kwargs), f"argument {index}"
                )
        for name in dict.fromkeys(name for call in calls for name in call.kwargs):
            if name in keyed:
                continue
            elsewhere = [call.kwargs[name] for call in calls if name in call.kwargs]
            for other in _alternatives(sample.kwargs.get(name), elsewhere):
                kwargs = {**sample.kwargs, name: other}
                yield from _compared(
                    rule, op, answer, Sample(sample.args, kwargs), f"argument {name!r}"
                )


def _unkeyed_tensors(calls: Sequence[Sample]) -> Iterator[Finding]:
    """Find keyword tensors whose placement torch would not look at.

    Source: torch's dispatch puts keyword arguments in its cache key only where `static_kwargkey`
    is given, tensors included.
    """
    for call in calls:
        for name, value in call.kwargs.items():
            if _holds_tensor(value):
                message = (
                    f"the tensor {name!r} is given by keyword, and no keyword is in the key: torch"
                    " would go on with the decision for another placement of it. Leave out"
                    f" schema_info, or give static_kwargkey=({name!r},)"
                )
                yield Finding("cache key", message, f"argument {name!r}", sample=str(call))
                return


def _compared(rule: Rule, op: Any, answer: Answer, other: Sample, place: str) -> Iterator[Finding]:
    again = query(rule, op, other)
    # A value that the rule does not take shows nothing: the op would not take it either.
    if again.finding is None and again.shown != answer.shown:
        message = (
            f"{place} is not in the key; with {other} the rows are {list(again.shown)}, but torch"
            f" would go on with those of the first call, {list(answer.shown)}. Leave out"
            " schema_info, or put the argument in it"
        )
        yield Finding("cache key", message, place, sample=str(answer.sample))


def _alternatives(value: Any, elsewhere: Iterable[Any]) -> list[Any]:
    """Other values for an argument, of a kind that would meet the same cache entry."""
    others: list[Any] = []
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, int):
        others = [value + 1, value - 1, 0, 1, -1, 2]
    elif isinstance(value, float):
        others = [value * 2 + 1, 0.0, 1.0, -value]
    elif isinstance(value, (list, tuple)) and value and all(type(v) is int for v in value):
        others = [[v + step for v in value] for step in (1, -1)] + [list(reversed(value))]
    elif isinstance(value, torch.dtype):
        others = [torch.float64, torch.float32, torch.int64, torch.int8]
    elif value is not None and not isinstance(value, str):
        return []
    same_kind = [v for v in elsewhere if value is None or type(v) is type(value)]
    return [v for v in (*others, *same_kind) if not _holds_tensor(v) and v != value]


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensor, value))
    return isinstance(value, torch.Tensor)


def _describe(answer: Answer) -> str:
    return answer.finding.evidence if answer.finding is not None else str(list(answer.shown))
