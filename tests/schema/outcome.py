"""Runs one kind of op in one column and says what came of it, compared with a single process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from dtensor_registry.errors import RegistryError
from tests.schema.kind import Kind
from tests.schema.world import Placements, cut, on_every_rank, placed

OK, WRONG, REFUSED, RAISED = "ok", "WRONG", "refused", "raised"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the calls of one kind in one column.

    Attributes:
        verdict: `ok`, `WRONG`, `refused` (an error of the registry that names the op and, where
            there is one, the argument), or `raised` (any other error).
        detail: what differs, or the error.
    """

    verdict: str
    detail: str = ""

    def __str__(self) -> str:
        error = self.detail.split(":")[0]
        return f"{self.verdict} {error}" if self.verdict in (REFUSED, RAISED) else self.verdict


def run(kind: Kind, turns: Sequence[Placements], mesh: DeviceMesh, views: bool = True) -> Outcome:
    """Make every call of a kind on DTensors, and on plain tensors of the same values.

    Args:
        kind: the kind.
        turns: how its tensors are placed, in turn.
        mesh: where.
        views: whether a result must share memory with an argument where it should. DTensor
            moves the input of a view where the view's rule asks for it.
    """
    for number, call in enumerate(kind.calls):
        plain = [tensor.clone() for tensor in kind.tensors]
        args, kwargs = call(plain)
        torch.manual_seed(0)
        expected = kind.op(*args, **kwargs)
        tensors = placed(kind.tensors, turns, mesh)
        before = [tensor.placements for tensor in tensors]
        args, kwargs = call(tensors)
        torch.manual_seed(0)
        try:
            result = kind.op(*args, **kwargs)
        except Exception as error:
            return _of_error(kind, error)
        fault = difference(result, expected)
        for at, (tensor, value, placements) in enumerate(zip(tensors, plain, before, strict=True)):
            fault = fault or _argument_fault(tensor, value, placements, at)
            for got, one in zip(tree_leaves(result), tree_leaves(expected), strict=False):
                fault = fault or _identity_fault((got, one), (tensor, value), views)
        if fault is not None:
            return Outcome(WRONG, f"call {number}: {fault}")
    return Outcome(OK)


def difference(result: Any, expected: Any) -> str | None:
    """Say where a result differs from the one of a single process, or None.

    Args:
        result: with DTensors; every rank that this process sees must have the value.
        expected: with plain tensors.
    """
    if isinstance(expected, (list, tuple)):
        if not isinstance(result, (list, tuple)) or len(result) != len(expected):
            return f"{len(tree_leaves(result))} results, expected {len(expected)}"
        pairs = zip(result, expected, strict=True)
        return next((d for got, one in pairs if (d := difference(got, one))), None)
    if not isinstance(expected, Tensor):
        same = type(result) is type(expected) and (result == expected or result is expected)
        return None if same else f"{result!r}, expected {expected!r}"
    if not isinstance(result, DTensor):
        return f"a {type(result).__name__}, expected a DTensor"
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return f"{result.dtype} {tuple(result.shape)}, expected {tuple(expected.shape)}"
    return _value_fault(result, expected)


def _value_fault(result: DTensor, expected: Tensor) -> str | None:
    parts = cut(torch.empty_like(expected, device="meta"), result.placements, result.device_mesh)
    for rank, (has, part) in enumerate(zip(on_every_rank(result), parts, strict=True)):
        if has.shape != part.shape:
            return f"rank {rank} holds {tuple(has.shape)} where its part is {tuple(part.shape)}"
    for rank, value in enumerate(on_every_rank(result.full_tensor())):
        if value.shape != expected.shape:
            return f"rank {rank} has shape {tuple(value.shape)}, expected {tuple(expected.shape)}"
        if not torch.allclose(value, expected, equal_nan=True):
            return f"rank {rank} has other values"
    return None


def _argument_fault(tensor: DTensor, value: Tensor, placements: Any, at: int) -> str | None:
    if tensor.placements != placements:
        return f"argument {at} was {placements} and became {tensor.placements}"
    if tensor.shape != value.shape:
        return f"argument {at} has shape {tuple(tensor.shape)}, expected {tuple(value.shape)}"
    fault = _value_fault(tensor, value)
    return fault and f"argument {at}: {fault}"


def _identity_fault(
    results: tuple[Any, Any], arguments: tuple[Any, Any], views: bool
) -> str | None:
    """Compare how a result is related to an argument with how it is in a single process."""
    (got, expected), (tensor, value) = results, arguments
    if not isinstance(expected, Tensor) or not isinstance(got, DTensor):
        return None
    if (expected is value) != (got is tensor):
        return "a result is an argument itself, or is not, other than it should"
    if views and _shares(expected, value) != _shares(got, tensor):
        return "a result shares memory with an argument, or does not, other than it should"
    return None


def _shares(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors share memory, on every rank that this process sees."""
    pairs = zip(on_every_rank(one), on_every_rank(other), strict=True)
    return all(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a, b in pairs)


def _of_error(kind: Kind, error: BaseException) -> Outcome:
    """Tell a refusal that helps from any other error."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    ours = next((cause for cause in causes if isinstance(cause, RegistryError)), None)
    shown = f"{type(ours or error).__name__}: {error}"
    # torch's C++ says this before it asks the host, and by another spelling of the op.
    meshless = str(error) == f"found no DeviceMesh from dtensor args for {kind.op.name()}"
    named = str(kind.op) in str(error) and (
        not kind.mutated or any(f"'{name}" in str(error) for name in kind.mutated)
    )
    return Outcome(REFUSED if meshless or (ours is not None and named) else RAISED, shown)
