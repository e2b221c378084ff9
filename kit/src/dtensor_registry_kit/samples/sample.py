"""Values that a wrong rule cannot pass by luck, and other sizes and dtypes of a sample.

A sample is one call, `(args, kwargs)` with real tensors. Its own values are tried first;
then come the same call with drawn values, negated, in other dtypes, and with every size
changed in turn. An op need not take all of these: one that it refuses on whole tensors is
left out by whoever runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

import torch

from dtensor_registry.rules.metadata import fill, tensor_inputs
from dtensor_registry_kit.simulation.distribute import is_inexact

Change: TypeAlias = Callable[[int, torch.Tensor], torch.Tensor]
"""Makes another tensor of the tensor input at a position."""

Role: TypeAlias = Literal[
    "given", "drawn", "negated", "dtype", "truth", "larger", "small", "telling"
]

_LOW = {torch.float16: 200, torch.bfloat16: 200}


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of an op.

    Attributes:
        args: positional arguments, with whole, plain tensors.
        kwargs: keyword arguments.
        origin: how it came about, for messages.
        role: what it is there to show; decides on which meshes it is tried.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: str = "as given"
    role: Role = "given"

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors of the call, in row order."""
        return tensor_inputs(self.args, self.kwargs)

    def changed(self, change: Change, origin: str, role: Role) -> Sample:
        """Make the same call with other tensors."""
        new = [change(position, tensor) for position, tensor in enumerate(self.inputs)]
        args, kwargs = fill(self.args, self.kwargs, new)
        return Sample(args, kwargs, origin, role)

    def __str__(self) -> str:
        shown = [show_argument(value) for value in self.args]
        shown += [f"{name}={show_argument(value)}" for name, value in self.kwargs.items()]
        return ", ".join(shown)


def sample_of(call: Any) -> Sample:
    """Read what an author's `samples` yields: `(args, kwargs)`, or a Sample.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(call, Sample):
        return call
    if isinstance(call, (tuple, list)) and len(call) == 2:
        args, kwargs = call
        if isinstance(args, (tuple, list)) and isinstance(kwargs, Mapping):
            return Sample(tuple(args), dict(kwargs))
    raise TypeError(f"a sample is a pair (args, kwargs), got {type(call).__name__}: {call!r:.80}")


def show_argument(value: Any) -> str:
    """Print an argument; a tensor by dtype and shape, as in `f64[8,4]`.

    >>> show_argument([torch.ones(2, 3), None])
    '[f32[2,3], None]'
    """
    if isinstance(value, torch.Tensor):
        return f"{_short(value.dtype)}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(show_argument, value))}]"
    return repr(value)


def _short(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


def draw(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Draw numbers that are all different, none zero, of both signs, and not symmetric.

    Magnitudes lie between 0.2 and 2.2, where most functions have something to say. Half
    precision gets multiples of 1/128, so that numbers stay different there too.

    >>> x = draw((3, 4), torch.float64, seed=0)
    >>> len(x.abs().unique()), bool((x < 0).any()), bool((x > 0).any())
    (12, True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    count = prod(shape)
    order = torch.randperm(count, generator=generator).double()
    if count <= _LOW.get(dtype, 0):
        magnitude = (26 + order * (230 // max(count, 1))) / 128
    else:
        jitter = torch.rand(count, generator=generator, dtype=torch.float64)
        magnitude = 0.2 + 2.0 * (order + jitter) / max(count, 1)
    sign = torch.where(torch.rand(count, generator=generator) < 0.4, -1.0, 1.0)
    if count > 1:  # both signs, whatever the coins say; the places depend on the seed
        sign[seed % count], sign[(seed + 1) % count] = -1.0, 1.0
    values = (magnitude * sign).reshape(tuple(shape))
    if dtype.is_complex:
        return torch.complex(values, draw(shape, torch.float64, seed + 7919)).to(dtype)
    return values.to(dtype)


def variants(sample: Sample, *, seed: int = 0, sizes: bool = True) -> Iterator[Sample]:
    """Yield a sample as given, with drawn values, negated, in other dtypes and other sizes.

    Sizes that are equal in the sample stay equal, so that what belongs together does. Tensors
    of integers may hold indices: they keep their values and are only ever repeated, and a
    sample that has some is only made larger.
    """
    yield sample
    inputs = sample.inputs
    if any(is_inexact(tensor) for tensor in inputs):
        drawn = sample.changed(_drawn(seed, torch.float64), "drawn values", "drawn")
        yield drawn
        yield drawn.changed(_negated, "drawn values, negated", "negated")
        for dtype in (torch.float32, torch.bfloat16):
            message = f"drawn values in {_short(dtype)}"
            yield sample.changed(_drawn(seed + 1, dtype), message, "dtype")
    else:
        drawn = sample
    if any(_holds_truth(tensor) for tensor in inputs):
        for odd, others in ((True, False), (False, True)):
            message = f"one element {odd}, the others {others}"
            yield drawn.changed(_odd_one(seed, odd=odd), message, "truth")
    if sizes:
        yield from _resized(drawn, seed)


def telling(sample: Sample, *, seed: int = 0) -> Iterator[Sample]:
    """Yield the call with values that some ops make a difference of, and no others do.

    Few values, so that two tensors agree here and there (`eq`, `nextafter`); then `odd` ones
    (`isnan`); then only values in [-1, 1], where polynomials and inverse functions are defined.
    """
    few = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    yield sample.changed(_from_list(few, seed), "few different values", "telling")
    yield from odd(sample, seed=seed)
    yield sample.changed(_within_one(seed), "values in [-1, 1]", "telling")


def odd(sample: Sample, *, seed: int = 0) -> Iterator[Sample]:
    """Yield the call with nan and zeros, then with infinities too: a linear op bears them.

    `nan_to_num` does not; `xlogy(x, y)` does for y = 2, so plain numbers are also negated.
    """
    some = [math.nan, 0.0, 1.0, -2.0]
    for values, message in ((some, "nan"), ([*some, math.inf, -math.inf], "nan and infinities")):
        among = _from_list(torch.tensor(values, dtype=torch.float64), seed)
        yield sample.changed(among, f"{message} among them", "telling")
    args = tuple(-value if isinstance(value, float) else value for value in sample.args)
    if any(isinstance(value, float) for value in args):
        negated = replace(sample, args=args)
        among = _from_list(torch.tensor(some, dtype=torch.float64), seed)
        yield negated.changed(among, "nan among them, its numbers negated", "telling")


def _from_list(values: torch.Tensor, seed: int) -> Change:
    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        generator = torch.Generator().manual_seed(seed * 100 + position)
        chosen = torch.randint(len(values), tuple(tensor.shape), generator=generator)
        return values[chosen].to(tensor.dtype)

    return change


def _within_one(seed: int) -> Change:
    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        # Numbers of eight bits can be made, but not divided.
        return (draw(tensor.shape, torch.float64, seed * 100 + position) / 2.25).to(tensor.dtype)

    return change


def _resized(sample: Sample, seed: int) -> Iterator[Sample]:
    present = sorted({size for tensor in sample.inputs for size in tensor.shape if size > 1})
    grown = {size: size + 1 for size in present}
    yield sample.changed(_sized(grown, seed), "each size one larger", "larger")
    if any(size < 2 for tensor in sample.inputs for size in tensor.shape):
        yield sample.changed(_sized({0: 5, 1: 5}, seed), "each size of 0 or 1 made 5", "larger")
    if all(_holds_truth(tensor) for tensor in sample.inputs):
        for new in (1, 0):
            for size in present[:4]:
                message = f"size {size} made {new}"
                yield sample.changed(_sized({size: new}, seed), message, "small")


def _drawn(seed: int, dtype: torch.dtype) -> Change:
    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        if not is_inexact(tensor):
            return tensor
        kind = tensor.dtype if tensor.dtype.is_complex else dtype
        return draw(tensor.shape, kind, seed * 100 + position)

    return change


def _negated(_position: int, tensor: torch.Tensor) -> torch.Tensor:
    return -tensor if is_inexact(tensor) else tensor


def _holds_truth(tensor: torch.Tensor) -> bool:
    return is_inexact(tensor) or tensor.dtype == torch.bool


def _odd_one(seed: int, *, odd: bool) -> Change:
    """One element is unlike all others in being zero, or not: what "any" and "all" are about."""

    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        if not _holds_truth(tensor) or not tensor.numel():
            return tensor
        mask = torch.full(tensor.shape, not odd).reshape(-1)
        mask[(seed + 3 * position + tensor.numel() // 2) % tensor.numel()] = odd
        mask = mask.reshape(tensor.shape)
        return mask if tensor.dtype == torch.bool else torch.where(mask, tensor, 0)

    return change


def _sized(sizes: Mapping[int, int], seed: int) -> Change:
    def change(position: int, tensor: torch.Tensor) -> torch.Tensor:
        shape = [sizes.get(size, size) for size in tensor.shape]
        if shape == list(tensor.shape):
            return tensor
        if is_inexact(tensor):
            return draw(shape, tensor.dtype, seed * 100 + 50 + position)
        if not tensor.numel():
            return tensor  # there is nothing to repeat, and another index may be out of range
        for dim, size in enumerate(shape):
            tensor = tensor.index_select(dim, torch.arange(size) % tensor.shape[dim])
        return tensor

    return change
