"""Counterexamples of corrections, run on simulated ranks beside one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dtensor_registry.placements import Partial, Placement, Shard
from dtensor_registry.rules import Counterexample, Held, SingleDimStrategy
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry_kit.simulation.distribute import reduce_parts
from dtensor_registry_kit.simulation.mesh import of_pieces, on_every_rank, plainly
from dtensor_registry_kit.torch_private import OpOverload, tree_leaves

Verdict: TypeAlias = Literal["right", "wrong", "raises"]

_LENGTH = 4
"""Elements of a tensor of which a counterexample gives one number; enough to be cut."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What DTensor does with a counterexample.

    Attributes:
        verdict: `wrong` if some rank has another result than one process, or another argument.
        message: the result, or what was raised.
    """

    verdict: Verdict
    message: str


def run_counterexample(op: OpOverload, shown: Counterexample, mesh: DeviceMesh) -> Outcome:
    """Run a counterexample on a simulated mesh, with whatever is in force, and in one process.

    Args:
        op: the op, or another form of it: with `out=`, or over lists.
        shown: the call.
        mesh: of one dim, with the ranks of the counterexample.
    """
    with plainly():
        held = _held(shown)
        wanted = _results(op, shown, [whole.clone() for whole, _ in held], held[0][0].clone())
    placed = [
        of_pieces(pieces, whole, (at,), mesh)
        for (whole, pieces), at in zip(held, shown.inputs, strict=True)
    ]
    whole, pieces = _held(shown)[0]
    out = of_pieces(pieces, whole, shown.inputs[:1], mesh)
    try:
        found = [
            on_every_rank(result.full_tensor() if isinstance(result, DTensor) else result)
            for result in _results(op, shown, placed, out)
        ]
    except Exception as error:
        return Outcome("raises", f"{type(error).__name__}: {error}".split("\n")[0])
    with plainly():
        for parts, one in zip(found, wanted, strict=True):
            for part in parts:
                if not _agree(part, one):
                    return Outcome("wrong", f"{part.tolist()}, not {one.tolist()}")
    return Outcome("right", str([one.tolist() for one in wanted]))


def samples_of(strategy: SingleDimStrategy, op: OpOverload) -> Callable[[], Iterable[Any]] | None:
    """Find the calls of an op that its author gave: samples, or else what torch has wrong."""
    shown = [each for each in strategy.shows if each.is_of(str(op))]
    if strategy.samples is not None or not shown:
        return strategy.samples
    return lambda: [_in_one_process(op, each) for each in shown]


def _in_one_process(
    op: OpOverload, shown: Counterexample
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    wholes = [whole for whole, _ in _held(shown)]
    return _arguments(op, shown, wholes, wholes[0].clone())


def _held(shown: Counterexample) -> list[tuple[torch.Tensor, Sequence[torch.Tensor]]]:
    """Make each tensor: the whole, and what each rank holds of it."""
    tensors = (value for value in shown.values if isinstance(value, Held))
    return [
        _pieces(each, placement, shown.ranks)
        for each, placement in zip(tensors, shown.inputs, strict=True)
    ]


def _pieces(
    held: Held, placement: Placement, ranks: int
) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
    first = _tensor(held.dtype, held.first)
    if isinstance(placement, Partial):
        second = first if held.second is None else _tensor(held.dtype, held.second)
        parts = [first, *(second.clone() for _ in range(ranks - 1))]
        return reduce_parts(parts, placement.reduce_op), parts
    if isinstance(placement, Shard):
        cut = list(first.chunk(ranks, placement.tensor_dim))
        nothing = first.narrow(placement.tensor_dim, 0, 0)
        return first, [piece.clone() for piece in (*cut, *[nothing] * (ranks - len(cut)))]
    return first, [first.clone() for _ in range(ranks)]


def _tensor(dtype: str, value: Any) -> torch.Tensor:
    kind = getattr(torch, dtype)
    if isinstance(value, tuple):
        return torch.arange(1, prod(value) + 1).to(kind).reshape(value)
    return torch.tensor(value if isinstance(value, list) else [value] * _LENGTH, dtype=kind)


def _results(
    op: OpOverload, shown: Counterexample, tensors: Sequence[Any], out: Any
) -> list[torch.Tensor]:
    """Call the op, and list the tensors of its result, and those that it may have written to."""
    args, kwargs = _arguments(op, shown, tensors, out)
    results = [leaf for leaf in tree_leaves(op(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    # A schema may not say what is written to: batch norm's has nothing of running statistics.
    return [*results, *(tensor for tensor in tensors if tensor.is_floating_point())]


def _arguments(
    op: OpOverload, shown: Counterexample, tensors: Sequence[Any], out: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Write the call in the form of the op, with these tensors; `out` is what it may write to."""
    declared = facts(op).parameters
    left = iter(tensors)

    def value(given: Any) -> Any:
        if isinstance(given, Held):
            return next(left)
        is_dtype = isinstance(given, str) and given.startswith("torch.")
        return getattr(torch, given.removeprefix("torch.")) if is_dtype else given

    args = [
        [value(given)] if isinstance(given, Held) and argument.is_list else value(given)
        for given, argument in zip(shown.args, declared, strict=False)
    ]
    kwargs = {name: value(given) for name, given in shown.kwargs}
    written = {argument.name: out for argument in declared if argument.output is not None}
    return tuple(args), {**written, **kwargs}


def _agree(part: torch.Tensor, one: torch.Tensor) -> bool:
    same_kind = (part.shape, part.dtype) == (one.shape, one.dtype)
    return same_kind and torch.allclose(part, one, equal_nan=True)
