"""Copies whole or in part, comparison of tensors, and new tensors like others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dtensor_registry import REPLICATE, ShardingPlaceholder
from dtensor_registry_structure.arguments import Row, line, linear, partials


def copy_rows(self: Any, src: Any, non_blocking: bool = False) -> Iterator[Row]:
    """`copy(self, src)`: the numbers of `src`, broadcast to the shape of `self`."""
    rank = len(self.shape)
    for dim in range(rank):
        cut = ShardingPlaceholder(dim)
        yield line([cut], (self, cut), (src, _repeated(src, dim - rank, self.shape[dim])))
    for partial in partials(src) if src.dtype == self.dtype else ():
        yield line([partial], (self, REPLICATE), (src, partial))


def equal_rows(self: Any, other: Any) -> Iterator[Row]:
    """`equal(self, other)`: torch takes the logical and of what the ranks find.

    A partial tensor holds none of the numbers that are compared, so none passes. Tensors of
    unlike shapes are unequal, whatever they hold; nothing is cut for that.
    """
    if tuple(self.shape) == tuple(other.shape):
        for dim in range(len(self.shape)):
            yield [ShardingPlaceholder(dim)] * 2


def new_like_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
    """`ones_like(x)`: shaped and cut as `x` is, and never partial: ones are no sum of ones."""
    x = args[0]
    cuts = [[ShardingPlaceholder(dim)] * 2 for dim in range(len(x.shape))]
    return [*cuts, *([REPLICATE, partial] for partial in partials(x))]


def put_rows(self: Any, index: Any, source: Any, accumulate: bool = False) -> Iterator[Row]:
    """`put(self, index, source)`: places count through the whole of `self`, so none is cut.

    Each element is picked from `self` or `source`, or is a sum of such, by `index` alone.
    """
    for partial in linear(self) if accumulate else partials(self):
        yield line([partial], (self, partial), (index, REPLICATE), (source, partial))


def select_scatter_rows(self: Any, src: Any, dim: int, index: Any) -> Iterator[Row]:
    """`select_scatter(self, src, dim, index)`: `src` in the place of `self.select(dim, index)`."""
    written = dim % len(self.shape)
    yield from _written_rows(self, src, written, is_kept=False)


def slice_scatter_rows(
    self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Iterator[Row]:
    """`slice_scatter(self, src, dim, start, end, step)`: `src` in the place of that slice."""
    written = dim % len(self.shape)
    yield from _written_rows(self, src, written, is_kept=True)


def _written_rows(self: Any, src: Any, written: int, *, is_kept: bool) -> Iterator[Row]:
    """Cut any dim but the one that is written along; each element is taken from one tensor."""
    rank = len(self.shape)
    for dim in range(rank):
        if dim == written:
            continue
        from_end = dim - rank + (dim < written and not is_kept)
        entry = _repeated(src, from_end, self.shape[dim])
        yield line([ShardingPlaceholder(dim)], (self, ShardingPlaceholder(dim)), (src, entry))
    for partial in partials(self) if src.dtype == self.dtype else ():
        yield [partial] * 3


def _repeated(tensor: Any, from_end: int, size: Any) -> Any:
    """Place a tensor that is broadcast, where the dim of this size is cut in what it goes to."""
    dim = len(tensor.shape) + from_end
    if dim < 0 or (_is_one(tensor.shape[dim]) and not _is_one(size)):
        return REPLICATE
    return ShardingPlaceholder(dim)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1
