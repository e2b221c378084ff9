"""Sample calls for a rule: its author's, those of torch's database, or made-up ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch._ops import OpOverload

from dtensor_registry._torch.checking.derived import derived_calls, plain_forms, runs
from dtensor_registry._torch.checking.made_up import made_up_calls
from dtensor_registry._torch.checking.opinfo import (
    LARGEST,
    NAMESPACES,
    MissingOpInfoError,
    opinfo_calls,
)
from dtensor_registry.verification import Sample
from dtensor_registry.verification.inputs import sample_of

Source: TypeAlias = Literal["author", "OpInfo", "made up"]


@dataclass(frozen=True, slots=True)
class Samples:
    """The calls that a rule is to be checked with.

    Attributes:
        calls: the calls.
        source: who made them.
        note: why they are not better, empty if there is nothing to say.
    """

    calls: tuple[Sample, ...]
    source: Source
    note: str = ""


def samples_for(op: OpOverload, given: Callable[[], Iterable[Any]] | None, limit: int) -> Samples:
    """Find calls of an op: the author's, else OpInfo's, else made up from the schema.

    Args:
        op: the op.
        given: the author's `samples`.
        limit: how many calls; of more, those that differ most are taken.

    Raises:
        TypeError: if the author's samples are no pairs of arguments and keyword arguments.
        Exception: whatever the author's function raises.

    >>> samples_for(torch.ops.aten.mm.default, lambda: [((torch.ones(2, 2),) * 2, {})], 4).source
    'author'
    """
    if given is not None:
        return Samples(tuple(map(sample_of, given()))[:limit], "author")
    note = ""
    try:
        known = [sample for sample in opinfo_calls(op) if runs(op, sample)]
        for plain in plain_forms(op) if not known else ():
            known += derived_calls(op, opinfo_calls(plain))
    except MissingOpInfoError as error:
        known, note = [], str(error).splitlines()[0]
    if len(known) >= limit:
        return Samples(_most_different(known, limit), "OpInfo")
    made = _made_up(op)
    if known:
        more = _most_different(made, limit - len(known))
        return Samples((*_most_different(known, limit), *more), "OpInfo", note)
    if op.namespace in NAMESPACES and not note:
        note = "OpInfo does not know the op"
    return Samples(_most_different(made, limit), "made up", note)


def _made_up(op: OpOverload) -> list[Sample]:
    """Make up calls, of the plain form where there is one: its shapes are the same."""
    made = made_up_calls(op)
    for plain in plain_forms(op) if not made else ():
        made += derived_calls(op, made_up_calls(plain))
    return made


def _most_different(calls: Sequence[Sample], limit: int) -> tuple[Sample, ...]:
    """Take the most ordinary call, then calls that show as much as possible that is new."""
    usable = [s for s in calls if all(0 < t.numel() <= LARGEST for t in s.inputs)] or list(calls)
    features = [frozenset(_features(sample)) for sample in usable]
    seen: set[str] = set()
    chosen: list[int] = []

    def worth(at: int) -> tuple[int, int, int]:
        fresh = features[at] - seen
        return len(fresh) if chosen else _ordinary(usable[at]), -_weight(usable[at]), -at

    while len(chosen) < min(limit, len(usable)):
        best = max((at for at in range(len(usable)) if at not in chosen), key=worth)
        chosen.append(best)
        seen |= features[best]
    return tuple(usable[at] for at in chosen)


def _ordinary(sample: Sample) -> int:
    """Count what makes a call one that most rules have something to say about."""
    inputs = sample.inputs
    largest = max(inputs, key=torch.Tensor.numel, default=torch.ones(0))
    return (
        any(t.dtype in (torch.float64, torch.float32) for t in inputs)
        + (largest.dim() > 1)
        + (largest.numel() >= 8)
        + (min(largest.shape, default=0) > 1)
        + (len({size for tensor in inputs for size in tensor.shape}) > 1)
    )


def _weight(sample: Sample) -> int:
    return sum(tensor.numel() for tensor in sample.inputs)


def _features(sample: Sample) -> Iterator[str]:
    """Name what is special about a call: ranks, sizes of 1, dtypes, and above all flags."""
    for place, value in (*enumerate(sample.args), *sample.kwargs.items()):
        yield from (f"{place} {feature}" for feature in _features_of(value))
    shapes = [tuple(tensor.shape) for tensor in sample.inputs]
    yield f"shapes {[len(shape) for shape in shapes]} {len(set(shapes)) == 1}"
    yield f"broadcast {[[size == 1 for size in shape] for shape in shapes]}"


def _features_of(value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        yield f"rank {value.dim()}"
        yield f"has one {1 in value.shape}"
        yield f"dtype {value.dtype}"
        yield f"contiguous {value.is_contiguous()}"
    elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        yield f"list of {len(value)}"
        for entry in value[:1]:
            yield from _features_of(entry)
    else:
        yield repr(value)
        yield f"{value!r}, which rows may depend on"
