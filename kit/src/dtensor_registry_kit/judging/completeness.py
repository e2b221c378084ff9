"""Rows that ground truth allows and a rule does not offer.

The search hands the inputs out in every way worth trying on two ranks, runs the op, and
reads off how each output is spread. What is worth trying factorises over the inputs:

- dims that are cut together have the same size, or one's is a multiple of the other's, so
  for each size an input is whole, or cut along a dim of that size;
- partial inputs go with whole ones, not with cut ones, and are of one kind.

What is found counts only once it also holds for other values, other sizes and three ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, TypeAlias

import torch

from dtensor_registry.placements import REPLICATE, Partial, Placement, Shard
from dtensor_registry.planner import Topology, price
from dtensor_registry.rules.well_formed import plain
from dtensor_registry_kit.judging.judge import judge
from dtensor_registry_kit.simulation.compare import tolerance_of
from dtensor_registry_kit.simulation.distribute import is_inexact
from dtensor_registry_kit.simulation.rebuild import rebuild_difference
from dtensor_registry_kit.simulation.reference_run import ReferenceRun

Row: TypeAlias = tuple[Placement | None, ...]
Inputs: TypeAlias = tuple[Placement, ...]

KINDS = ("sum", "avg", "max", "min")
"""Partial kinds that the search tries."""

_FEWEST = 4
"""Elements that it takes to say of a partial that it is not by luck that parts reduce."""

_REAL_SIZE = 2**16
"""Samples are small; savings are told for tensors this many times as large."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A row that a rule could offer.

    Attributes:
        row: its placements.
        saves: microseconds, on two ranks, that inputs which come as the row says would save
            over the best row that the rule offers.
    """

    row: Row
    saves: float


def missing_rows(
    whole: ReferenceRun,
    offered: Sequence[Sequence[Any]],
    confirm: Sequence[ReferenceRun],
    budget: int,
) -> tuple[list[Missing], int]:
    """Search for rows that are right but not offered, best first.

    Args:
        whole: a call whose numbers carry evidence.
        offered: the rows of the rule for that call.
        confirm: other calls that a row must hold for.
        budget: how many ways of handing out the inputs may be tried.

    Returns:
        The rows, and how many ways were tried.

    >>> from dtensor_registry_kit.simulation.reference_run import run_reference
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    >>> found, _ = missing_rows(run_reference(torch.sin, (x,)), [[Shard(0), Shard(0)]], [], 100)
    >>> [str(placement) for placement in found[0].row]
    ['S(1)', 'S(1)']
    """
    operands = [at for at in range(len(whole.inputs)) if at not in whole.write_only]
    known = {_of_operands(whole, row, operands) for row in offered}
    known.add((REPLICATE,) * len(operands))
    found = []
    tried = 0
    for inputs in islice(_ways([whole.inputs[at] for at in operands]), budget):
        tried += 1
        if inputs in known:
            continue
        for row in _rows_with(whole, dict(zip(operands, inputs, strict=True))):
            if _holds([whole, *confirm], row):
                found.append(Missing(row, _saving(whole, row, [*offered, *_replicate(whole)])))
    return sorted(found, key=lambda missing: -missing.saves), tried


def _of_operands(
    whole: ReferenceRun, row: Sequence[Any], operands: Sequence[int]
) -> tuple[Any, ...]:
    inputs = row[len(row) - len(whole.inputs) :]
    return tuple(plain(inputs[at]) for at in operands)


def _replicate(whole: ReferenceRun) -> list[Row]:
    return [(REPLICATE,) * len(whole.inputs)]


def _ways(inputs: Sequence[torch.Tensor]) -> Iterator[Inputs]:
    """List ways to hand out the inputs, the likeliest first, each once."""
    seen: set[Inputs] = set()
    for way in (*_aligned(inputs), *_kinds_alone(inputs)):
        if way not in seen:
            seen.add(way)
            yield way
    sizes = sorted({size for tensor in inputs for size in tensor.shape if size > 1})
    cut = [[[REPLICATE, *_cuts(tensor, size)] for tensor in inputs] for size in sizes]
    partial: list[list[list[Placement]]] = [
        [[REPLICATE, Partial(kind)] for _ in inputs] for kind in _kinds(inputs)
    ]
    for choice in (*cut, *partial):
        for way in product(*choice):
            if way not in seen:
                seen.add(way)
                yield way


def _aligned(inputs: Sequence[torch.Tensor]) -> Iterator[Inputs]:
    """All inputs cut along one dim, counted from the front or from the back."""
    for dim in range(max((tensor.dim() for tensor in inputs), default=0)):
        yield tuple(Shard(dim) if _can_cut(t, dim) else REPLICATE for t in inputs)
        yield tuple(
            Shard(t.dim() - 1 - dim) if _can_cut(t, t.dim() - 1 - dim) else REPLICATE
            for t in inputs
        )


def _can_cut(tensor: torch.Tensor, dim: int) -> bool:
    return 0 <= dim < tensor.dim() and tensor.shape[dim] > 1


def _kinds_alone(inputs: Sequence[torch.Tensor]) -> Iterator[Inputs]:
    """All inputs partial, and each input alone."""
    for kind in _kinds(inputs):
        yield (Partial(kind),) * len(inputs)
        for position in range(len(inputs)):
            yield tuple(Partial(kind) if i == position else REPLICATE for i in range(len(inputs)))


def _kinds(inputs: Sequence[torch.Tensor]) -> tuple[str, ...]:
    if max((tensor.numel() for tensor in inputs), default=0) < _FEWEST:
        return ()
    common = [set(_kinds_of(tensor)) for tensor in inputs]
    return tuple(kind for kind in KINDS if all(kind in kinds for kinds in common))


def _kinds_of(tensor: torch.Tensor) -> tuple[str, ...]:
    # An average of integers is rounded; complex numbers have no order.
    if tensor.dtype.is_complex:
        return ("sum", "avg")
    return KINDS if is_inexact(tensor) else ("sum", "max", "min")


def _cuts(tensor: torch.Tensor, size: int) -> list[Placement]:
    return [Shard(dim) for dim, own in enumerate(tensor.shape) if own and own % size == 0]


def _rows_with(whole: ReferenceRun, operands: Mapping[int, Placement]) -> list[Row]:
    """Find how the outputs are spread over two ranks when the operands are spread so."""
    try:
        given = [
            whole.pieces(position, (operands.get(position, REPLICATE),), (2,), 0)
            for position in range(len(whole.inputs))
        ]
        results = [whole.run([pieces[rank] for pieces in given]) for rank in range(2)]
    except Exception:
        return []  # the op does not take these pieces, so there is no such row
    if any(len(result) != len(whole.outputs) for result in results):
        return []
    relative = tolerance_of(whole.operands, whole.tensor_outputs)
    spread: list[list[Placement | None]] = []
    for index, want in enumerate(whole.outputs):
        got = [result[index] for result in results]
        spread.append(_spread(got, want, relative))
    written = {position: output for output, position in whole.tied}
    return [
        (*outputs, *(operands.get(at) or outputs[written[at]] for at in range(len(given))))
        for outputs in product(*spread)
    ]


def _spread(got: Sequence[Any], want: Any, relative: float) -> list[Placement | None]:
    if not isinstance(want, torch.Tensor):
        return [None] if all(value == want for value in got) else []
    if any(not isinstance(value, torch.Tensor) for value in got):
        return []
    whole_or_cut: list[Placement] = [REPLICATE]
    whole_or_cut += [Shard(dim) for dim, size in enumerate(want.shape) if size > 1]
    for candidate in whole_or_cut:
        if rebuild_difference(got, want, (candidate,), (2,), relative) is None:
            return [candidate]
    if want.dtype == torch.bool or any(value.shape != want.shape for value in got):
        return []
    return [
        partial
        for partial in map(Partial, _kinds_of(want))
        if rebuild_difference(got, want, (partial,), (2,), relative) is None
    ]


def _holds(wholes: Sequence[ReferenceRun], row: Row) -> bool:
    verdicts = [judge(whole, [row], (ranks,)) for whole in wholes for ranks in (2, 3)]
    return any(v.outcome == "sound" for v in verdicts) and not any(v.is_wrong for v in verdicts)


def _saving(whole: ReferenceRun, row: Row, offered: Sequence[Sequence[Any]]) -> float:
    """Price the cheapest row that there is, for inputs that come as in `row`."""
    topology = Topology.assumed((2,), devices_per_host=2)
    width = len(whole.inputs)
    total = []
    for other in offered:
        cost = 0.0
        for at in range(width):
            have, need = row[at - width], plain(other[at - width])
            if have is not None and need is not None:
                tensor = whole.inputs[at]
                nbytes = tensor.numel() * tensor.element_size() * _REAL_SIZE
                cost += price((have,), (need,), nbytes, topology)
        total.append(cost)
    return min(total)
