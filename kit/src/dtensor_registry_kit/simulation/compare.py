"""When two tensors are the same but for rounding, and where they are not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dtensor_registry_kit.simulation.distribute import is_inexact


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that shows two tensors to be different.

    Attributes:
        what: the two shapes, dtypes or elements that differ.
        worst: the largest absolute difference of elements; None where shapes or dtypes differ.
        tolerance: what rounding alone would account for.
    """

    what: str
    worst: float | None = None
    tolerance: float = 0.0

    def __str__(self) -> str:
        if self.worst is None:
            return self.what
        allowed = f", of which rounding explains {self.tolerance:.1e}" if self.tolerance else ""
        return f"{self.what} (largest difference {self.worst:.4g}{allowed})"


def relative_tolerance(tensors: Iterable[torch.Tensor], length: int) -> float:
    """Bound the rounding error of one op, relative to the largest number in it.

    A few roundings of the coarsest dtype that takes part, and `sqrt(length)` roundings of the
    dtype that sums are kept in: float32 for 16 bits and less.

    Source: N. Higham and T. Mary, "A new approach to probabilistic rounding error analysis",
    SIAM J. Sci. Comput. 41 (2019): sums of n terms err by about sqrt(n) roundings.

    Args:
        tensors: all that takes part.
        length: how many elements a reduction may run over.

    >>> relative_tolerance([torch.ones(4, dtype=torch.float64)], 4) < 1e-13
    True
    """
    dtypes = {tensor.dtype for tensor in tensors if is_inexact(tensor)}
    if not dtypes:
        return 0.0
    step = max(torch.finfo(dtype).eps for dtype in dtypes)
    summed = max(torch.finfo(torch.float32 if t.itemsize < 4 else t).eps for t in dtypes)
    return 8 * step + 16 * summed * math.sqrt(length)


def tolerance_of(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> float:
    """Bound the rounding error of one call, relative to the largest number in it.

    An op that makes real numbers of integers alone computes them in the default dtype, also
    where it then writes them to something finer. Numbers of 8 bits are multiplied as they are,
    without a rounding: those that go in do not count.

    Args:
        inputs: what the op reads.
        outputs: what it returns or writes to.
    """
    tensors = [*(tensor for tensor in inputs if tensor.itemsize > 1), *outputs]
    if not any(map(is_inexact, inputs)) and any(map(is_inexact, outputs)):
        tensors.append(torch.empty(0, dtype=torch.get_default_dtype()))
    return relative_tolerance(tensors, max((tensor.numel() for tensor in tensors), default=1))


def magnitude(tensors: Sequence[torch.Tensor]) -> float:
    """Find the largest finite absolute value; 0 if there is none."""
    largest = 0.0
    for tensor in tensors:
        if tensor.numel() and is_inexact(tensor):
            largest = max(
                largest, _with_kernels(tensor).abs().nan_to_num(0.0, 0.0, 0.0).max().item()
            )
    return largest


def difference(
    got: torch.Tensor,
    want: torch.Tensor,
    relative: float,
    scale: float | None = None,
    *,
    finite_only: bool = False,
) -> Difference | None:
    """Find what makes two tensors different, or None.

    Args:
        got: rebuilt from the ranks.
        want: of the run on whole tensors.
        relative: tolerance relative to the largest number, see `relative_tolerance`.
        scale: the largest number that took part; left out, that of `want`.
        finite_only: let pass what is not finite in the whole run: a sum of parts that are
            infinite in both directions is no number.

    >>> print(difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]), 1e-6))
    at [1]: 2.0, whole run 5.0 (largest difference 3, of which rounding explains 5.0e-06)
    """
    if got.shape != want.shape:
        return Difference(f"shape {tuple(got.shape)}, whole run {tuple(want.shape)}")
    if got.dtype != want.dtype:
        return Difference(f"dtype {got.dtype}, whole run {want.dtype}")
    got, want = _with_kernels(got), _with_kernels(want)
    if torch.equal(got, want) or not want.numel():
        return None
    if not is_inexact(want):
        return _worst(got, want, got != want, 0.0)
    allowed = relative * (magnitude([want]) if scale is None else scale)
    got, want = _widened(got), _widened(want)
    close = (got - want).abs() <= allowed
    bad = ~(close | (got == want) | (got.isnan() & want.isnan()))
    if finite_only:
        bad &= want.isfinite()
    return _worst(got, want, bad, allowed) if bad.any() else None


def _worst(got: torch.Tensor, want: torch.Tensor, bad: torch.Tensor, allowed: float) -> Difference:
    gap = (_widened(got) - _widened(want)).abs().nan_to_num(math.inf, math.inf)
    gap = torch.where(bad, gap, -1.0)
    flat = int(gap.argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), gap.shape)]
    place = f"at {index}: " if index else ""
    ours, theirs = _number(got, flat), _number(want, flat)
    return Difference(f"{place}{ours}, whole run {theirs}", float(gap.max()), allowed)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def _with_kernels(tensor: torch.Tensor) -> torch.Tensor:
    """Widen the dtypes for which torch lacks even `equal` and `abs`: complex32 and float8."""
    lacks = is_inexact(tensor) and (tensor.itemsize == 1 or tensor.dtype == torch.complex32)
    return _widened(tensor) if lacks else tensor


def _number(tensor: torch.Tensor, flat: int) -> Any:
    value = tensor.reshape(-1)[flat].item()
    return float(f"{value:.6g}") if isinstance(value, float) else value


def carries_evidence(whole: torch.Tensor) -> bool:
    """Say whether a tensor can tell a right rule from a wrong one.

    All zeros, or all the same, is what too many wrong rules give as well; so is one truth
    value, or a tensor without a finite element.

    >>> carries_evidence(torch.zeros(3)), carries_evidence(torch.tensor([1.0, 2.0]))
    (False, True)
    """
    if not whole.numel():
        return False
    values = _with_kernels(whole).reshape(-1)
    if is_inexact(values):
        values = values[values.isfinite()]
        if not values.numel():
            return False
    if values.numel() == 1:
        return values.dtype != torch.bool and bool(values[0] != 0)
    return bool((values != values[0]).any())
