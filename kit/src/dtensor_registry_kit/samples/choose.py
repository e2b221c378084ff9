"""Sample calls for a rule: its author's, those of torch's database, or generated ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from dtensor_registry.rules import tensor_inputs
from dtensor_registry_kit.samples.generated import generated_calls
from dtensor_registry_kit.samples.opinfo import (
    LARGEST,
    MOST,
    NAMESPACES,
    MissingOpInfoError,
    opinfo_calls,
    opinfo_list_calls,
)
from dtensor_registry_kit.samples.other_forms import derived_calls, plain_forms, runs
from dtensor_registry_kit.samples.sample import Sample, sample_of
from dtensor_registry_kit.torch_private import OpOverload

Source: TypeAlias = Literal["author", "OpInfo", "generated"]


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
    """Find calls of an op: the author's, else OpInfo's, else generated from the schema.

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
        known = _known(op, MOST)
    except MissingOpInfoError as error:
        known, note = [], str(error)
    if len(known) >= limit:
        return Samples(_most_different(known, limit), "OpInfo")
    made = _generated(op)
    if known:
        more = _most_different(made, limit - len(known))
        return Samples((*_most_different(known, limit), *more), "OpInfo", note)
    if op.namespace in NAMESPACES and not note:
        note = "OpInfo does not know the op"
    return Samples(_most_different(made, limit), "generated", note)


def known_samples(op: OpOverload, limit: int, most: int) -> tuple[Sample, ...]:
    """Find calls of an op by OpInfo alone, those that differ most.

    Args:
        op: the op.
        limit: how many calls.
        most: samples that are run of one entry of OpInfo and dtype.

    Raises:
        MissingOpInfoError: if OpInfo cannot be imported.

    >>> known_samples(torch.ops.prims.iota.default, 2, 2)
    ()
    """
    known = _known(op, most) or [s for s in opinfo_list_calls(op, most) if runs(op, s)]
    return _most_different(known, limit)


def _known(op: OpOverload, most: int) -> list[Sample]:
    known = [sample for sample in opinfo_calls(op, most) if runs(op, sample)]
    for plain in plain_forms(op) if not known else ():
        known += derived_calls(op, opinfo_calls(plain, most))
    return known


def _generated(op: OpOverload) -> list[Sample]:
    """Generate calls, of the plain form where there is one: its shapes are the same."""
    made = generated_calls(op)
    for plain in plain_forms(op) if not made else ():
        made += derived_calls(op, generated_calls(plain))
    return made


def _most_different(calls: Sequence[Sample], limit: int) -> tuple[Sample, ...]:
    """Take the most ordinary call, then calls that show as much as possible that is new.

    Other flags come first, with ordinary tensors, and may take two thirds; then other tensors.
    """
    usable = [s for s in calls if all(0 < t.numel() <= LARGEST for t in s.inputs)] or list(calls)
    flags = [frozenset(_flags(sample)) for sample in usable]
    looks = [frozenset(_looks(sample)) for sample in usable]
    seen: set[str] = set()
    chosen: list[int] = []

    def worth(at: int) -> tuple[int, int, int, int, int]:
        news = len(flags[at] - seen) if 0 < len(chosen) <= limit * 2 // 3 else 0
        ordinary = _ordinary(usable[at]) if news or not chosen else 0
        return news, ordinary, len(looks[at] - seen), -_weight(usable[at]), -at

    while len(chosen) < min(limit, len(usable)):
        best = max((at for at in range(len(usable)) if at not in chosen), key=worth)
        chosen.append(best)
        seen |= flags[best] | looks[best]
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
        + all(tensor.numel() > 1 for tensor in inputs)
    )


def _weight(sample: Sample) -> int:
    return sum(tensor.numel() for tensor in sample.inputs)


def _flags(sample: Sample) -> Iterator[str]:
    """Name the values that rows may depend on; numbers of one sign are alike."""
    for place, value in (*enumerate(sample.args), *sample.kwargs.items()):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            sign = "positive" if value > 0 else "negative" if value < 0 else "zero"
            yield f"{place} {sign}"
        elif not _tensors_in(value):
            yield f"{place} {value!r}"


def _looks(sample: Sample) -> Iterator[str]:
    """Name what is special about the tensors of a call: ranks, sizes of 1, dtypes."""
    for place, value in (*enumerate(sample.args), *sample.kwargs.items()):
        tensors = _tensors_in(value)
        for tensor in tensors[:1]:
            yield f"{place} list of {len(tensors)}" if tensor is not value else ""
            yield f"{place} rank {tensor.dim()}"
            yield f"{place} has one {1 in tensor.shape}"
            yield f"{place} dtype {tensor.dtype}"
            yield f"{place} contiguous {tensor.is_contiguous()}"
    shapes = [tuple(tensor.shape) for tensor in sample.inputs]
    yield f"shapes {[len(shape) for shape in shapes]} {len(set(shapes)) == 1}"
    yield f"broadcast {[[size == 1 for size in shape] for shape in shapes]}"


def _tensors_in(value: Any) -> tuple[torch.Tensor, ...]:
    return tensor_inputs((value,), {})
