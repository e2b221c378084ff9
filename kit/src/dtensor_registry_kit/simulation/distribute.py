"""A simulated mesh: what each rank would hold of a tensor, and what their pieces add up to.

Ranks are listed in mesh order, the last mesh dim fastest, as plain local tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import torch

from dtensor_registry.placements import Partial, Placement, Placements, Replicate, Shard


def chunk(value: torch.Tensor, tensor_dim: int, index: int, count: int) -> torch.Tensor:
    """View piece `index` of `count` along a tensor dim, cut as DTensor cuts.

    Every piece but the last ones has ceil(size / count) elements; the last may be shorter or empty.

    Source: `torch.chunk`, padded with empty pieces as `torch.distributed.tensor.Shard` does.

    >>> [chunk(torch.arange(5), 0, rank, 4).tolist() for rank in range(4)]
    [[0, 1], [2, 3], [4], []]
    """
    size = value.shape[tensor_dim]
    step = -(-size // count)
    start = min(index * step, size)
    return value.narrow(tensor_dim, start, min(step, size - start))


def distribute(
    value: torch.Tensor,
    placements: Placements,
    mesh: Sequence[int],
    generator: torch.Generator,
) -> list[torch.Tensor]:
    """Give every rank of a mesh its local tensor of `value`.

    Args:
        value: the whole tensor; pieces may be views of it.
        placements: one per mesh dim.
        mesh: ranks per mesh dim.
        generator: what the addends of partials are drawn from.
    """
    if not mesh:
        return [value]
    return [
        local
        for part in _split(value, placements[0], mesh[0], generator)
        for local in distribute(part, placements[1:], mesh[1:], generator)
    ]


def _split(
    value: torch.Tensor, placement: Placement, count: int, generator: torch.Generator
) -> list[torch.Tensor]:
    if isinstance(placement, Replicate):
        return [value] * count
    if isinstance(placement, Shard):
        # clone keeps the order of strides, as the local tensor of a DTensor does.
        pieces = (chunk(value, placement.tensor_dim, rank, count) for rank in range(count))
        return [p if p.is_contiguous() else p.clone() for p in pieces]
    if isinstance(placement, Partial):
        return split_partial(value, placement.reduce_op, count, generator)
    raise NotImplementedError(f"{placement} cannot be simulated")


def split_partial(
    value: torch.Tensor, reduce_op: str, count: int, generator: torch.Generator
) -> list[torch.Tensor]:
    """Draw uneven, sign-mixed parts of `value` that reduce to it.

    No part equals the value, so that an op which is not linear (or not monotone, for min and
    max) in a partial input shows it. The sum of parts of what `on_grid` gives is exact, in
    whatever order they are added; of other values it is rounded.

    >>> parts = split_partial(torch.ones(2), "sum", 3, torch.Generator().manual_seed(0))
    >>> torch.allclose(sum(parts), torch.ones(2)), any(torch.equal(p, parts[0]) for p in parts[1:])
    (True, False)
    """
    if value.dtype == torch.bool:
        return _split_bool(value, reduce_op, count, generator)
    if value.dtype.is_complex and reduce_op in ("max", "min"):
        raise NotImplementedError(f"complex numbers have no order, so no P({reduce_op})")
    if reduce_op in ("sum", "avg"):
        noise = (_noise(value, rank + 1, generator) for rank in range(count - 1))
        offsets = [_rounded(drawn, _step(value)) for drawn in noise]
        if offsets and value.dtype.is_floating_point and value.isinf().any():
            # No number is what infinities of both signs add up to, too. Where there are none
            # they stay away: `nan_to_num` makes numbers of them that hide all others.
            coins = torch.randint(2, value.shape, generator=generator).bool() & value.isnan()
            offsets[0] = torch.where(coins, torch.inf, offsets[0])
            value = torch.where(coins, -torch.inf, value)
        total = sum(offsets[1:], offsets[0]) if offsets else torch.zeros_like(value)
        if reduce_op == "avg":
            if not is_inexact(value):  # an average of integers is rounded down, as a rule
                total = total - torch.randint(0, count, value.shape, generator=generator)
            return [*(value + offset for offset in offsets), (value - total).to(value.dtype)]
        return [*offsets, value - total]
    if reduce_op in ("max", "min"):
        return _split_extreme(value, reduce_op, count, generator)
    if reduce_op == "product":
        return _split_product(value, count, generator)
    if is_inexact(value):
        raise NotImplementedError(f"P({reduce_op}) of {value.dtype} cannot be simulated")
    if reduce_op == "bxor":
        masks = [_noise(value, rank + 1, generator) for rank in range(count - 1)]
        return [*masks, reduce(torch.bitwise_xor, masks, value)]
    if reduce_op in ("band", "bor"):
        holder = _holder(value, count, generator)
        join = torch.bitwise_or if reduce_op == "band" else torch.bitwise_and
        noisy = [join(value, _noise(value, rank + 1, generator)) for rank in range(count)]
        return [torch.where(holder == rank, value, part) for rank, part in enumerate(noisy)]
    raise NotImplementedError(f"P({reduce_op}) cannot be simulated")


def on_grid(value: torch.Tensor) -> torch.Tensor:
    """Round values to multiples of a power of two, so that parts of a sum are not rounded.

    Ops that compare (argmax, nonzero, a target of 1 or -1) make much of the last bit. What has
    fewer bits than float32 has none to spare, and stays as it is.

    >>> parts = split_partial(on_grid(torch.rand(9)), "sum", 3, torch.Generator().manual_seed(0))
    >>> torch.equal(sum(parts), sum(reversed(parts)))
    True
    """
    return _rounded(value, _step(value))


def _step(value: torch.Tensor) -> float | None:
    """Give the power of two of which sums of parts of a value are multiples."""
    real = value.dtype.to_real() if value.dtype.is_complex else value.dtype
    if not real.is_floating_point or real.itemsize < 4:
        return None
    # The parts of parts, and what they add up to on the way, are below 32 times the largest.
    return 2.0 ** (math.ceil(math.log2(_reach(value))) + 5) * torch.finfo(real).eps


def _rounded(value: torch.Tensor, step: float | None) -> torch.Tensor:
    if step is None:
        return value
    if value.dtype.is_complex:
        return torch.view_as_complex(_rounded(torch.view_as_real(value), step))
    return (value / step).round() * step


def _split_bool(
    value: torch.Tensor, reduce_op: str, count: int, generator: torch.Generator
) -> list[torch.Tensor]:
    """Split truth values: sum and max are "or", product and min are "and"."""
    is_or = reduce_op in ("sum", "max", "bor")
    if not is_or and reduce_op not in ("product", "min", "band"):
        raise NotImplementedError(f"P({reduce_op}) of bool cannot be simulated")
    holder = _holder(value, count, generator)
    coins = [torch.randint(0, 2, value.shape, generator=generator).bool() for _ in range(count)]
    join = torch.logical_and if is_or else torch.logical_or
    return [torch.where(holder == r, value, join(value, coin)) for r, coin in enumerate(coins)]


def _split_extreme(
    value: torch.Tensor, reduce_op: str, count: int, generator: torch.Generator
) -> list[torch.Tensor]:
    """One rank, another for each element, holds the value; the others lie beyond it.

    Some lie just beyond, some beyond the range of all values, where they have another sign. If
    there are zeros among the values, some are zero where that lies beyond: another truth value.
    Else there are none, since gradients may jump at zero.
    """
    holder = _holder(value, count, generator)
    with_zeros = bool((value == 0).any())
    parts = []
    for rank in range(count):
        noise = _noise(value, rank + 1, generator)
        is_far = torch.randint(2, value.shape, generator=generator).bool()
        beyond = torch.where(is_far, noise.abs() + 2 * _reach(value), noise.abs() / 4 + 0.01)
        if not is_inexact(value):
            beyond = beyond.ceil()
        beyond = beyond.to(value.dtype)
        part = value - beyond if reduce_op == "max" else value + beyond
        if not is_inexact(value):  # an integer may have wrapped round
            part = torch.minimum(part, value) if reduce_op == "max" else torch.maximum(part, value)
        zero_is_beyond = value > 0 if reduce_op == "max" else value < 0
        is_zero = zero_is_beyond & (torch.randint(4, value.shape, generator=generator) == 0)
        part = part.masked_fill(is_zero & with_zeros, 0)
        # What is not a number outdoes all numbers: the others may hold any.
        part = torch.where(value.isnan(), noise, part)
        parts.append(torch.where(holder == rank, value, part))
    return parts


def _split_product(
    value: torch.Tensor, count: int, generator: torch.Generator
) -> list[torch.Tensor]:
    """Factors that are powers of two (signs, for integers), so that the product is exact."""
    if is_inexact(value):
        choices = torch.tensor([-2.0, -0.5, 0.5, 2.0, 4.0])
    elif value.dtype.is_signed:
        choices = torch.tensor([-1, 1])
    else:
        choices = torch.tensor([1])
    factors = [
        choices[torch.randint(len(choices), value.shape, generator=generator)].to(value.dtype)
        for _ in range(count - 1)
    ]
    last = value
    for factor in factors:  # dividing by a sign is multiplying by it, and stays an integer
        last = last / factor if is_inexact(value) else last * factor
    return [*factors, last]


def is_inexact(value: torch.Tensor) -> bool:
    """Say whether the elements are floating-point or complex numbers."""
    return value.dtype.is_floating_point or value.dtype.is_complex


def _reach(value: torch.Tensor) -> float:
    """The size of the largest finite element, at least 1, at most 1000 to spare small dtypes."""
    if value.numel() == 0:
        return 1
    if not is_inexact(value):
        return 3
    largest = value.abs().nan_to_num(1.0, 1.0, 1.0).max().item()
    return min(max(largest, 1.0), 1000.0)


def _noise(value: torch.Tensor, weight: int, generator: torch.Generator) -> torch.Tensor:
    """Draw sign-mixed offsets of the size of the values, larger for a larger weight."""
    if is_inexact(value):
        kind = torch.complex128 if value.dtype.is_complex else torch.float64
        drawn = torch.rand(value.shape, generator=generator, dtype=kind)
        return ((drawn - 0.4) * (weight * _reach(value))).to(value.dtype)
    return torch.randint(-5, 7 + weight, value.shape, generator=generator).to(value.dtype)


def _holder(value: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(count, value.shape, generator=generator)


_REDUCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "avg": torch.add,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
    "max": torch.maximum,
    "min": torch.minimum,
    "product": torch.mul,
    "sum": torch.add,
}


def reduce_parts(parts: Sequence[torch.Tensor], reduce_op: str) -> torch.Tensor:
    """Reduce what the ranks hold, as the all-reduce of that name does.

    Raises:
        NotImplementedError: for a reduction that the dtype has not.
        RuntimeError: if the ranks hold tensors of different shapes.

    >>> reduce_parts([torch.tensor([1.0]), torch.tensor([2.0])], "avg")
    tensor([1.5000])
    """
    if reduce_op not in _REDUCTIONS:
        raise NotImplementedError(f"P({reduce_op}) cannot be simulated")
    if any(part.shape != parts[0].shape for part in parts):
        shapes = ", ".join(str(tuple(part.shape)) for part in parts)
        raise RuntimeError(f"the ranks hold tensors of different shapes: {shapes}")
    total = reduce(_REDUCTIONS[reduce_op], parts)
    if reduce_op != "avg":
        return total
    return total / len(parts) if is_inexact(total) else total // len(parts)
