"""Scatters that reduce, and reductions over segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dtensor_registry import REPLICATE, Partial, ShardingPlaceholder, is_tensor
from dtensor_registry_structure.arguments import Row, line, linear, partials

_KINDS = {
    "add": "sum",
    "amax": "max",
    "amin": "min",
    "multiply": "product",
    "prod": "product",
    "sum": "sum",
}
"""By the name of a reduction: the partial that is left where its terms are spread over ranks."""


def scatter_reduce_rows(
    self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Iterator[Row]:
    """`scatter_reduce`: `out[index[i]] = reduce(out[index[i]], src[i])` along `dim`.

    - Another dim is cut in all tensors, where it has the same size in all.
    - Along `dim` the entries may be spread over ranks: each rank reduces its own into what it
      has of `self`, and these partial results are reduced the same way. `self` counts once,
      so it is partial as well (a whole one would do for a maximum, but not for its gradient).
      Without `include_self` a rank could not tell which elements of it to leave out.
    - A sum and a mean are linear in `self` and `src` together, a product is so in `self`; a
      maximum may be taken over ranks before or after.
    """
    rank = len(self.shape)
    if rank == 0 or not is_tensor(index) or len(index.shape) != rank:
        return
    along = dim % rank
    tensors = [tensor for tensor in (self, index, src) if is_tensor(tensor)]
    for other in range(rank):
        if other != along and len({tensor.shape[other] for tensor in tensors}) == 1:
            cut = ShardingPlaceholder(other)
            yield line([cut], (self, cut), (index, cut), (src, cut))
    held = {partial.reduce_op for partial in partials(self)}
    kind = _KINDS.get(reduce)
    same_size = not is_tensor(src) or src.shape[along] == index.shape[along]
    if include_self and same_size and kind in held:
        cut, partial = ShardingPlaceholder(along), Partial(kind)
        yield line([partial], (self, partial), (index, cut), (src, cut))
    yield from _passing_rows(self, index, src, reduce, include_self)


def _passing_rows(
    self: Any, index: Any, src: Any, reduce: str, include_self: bool
) -> Iterator[Row]:
    """Pass partials through a scatter whose entries are whole."""
    kind = _KINDS.get(reduce)
    if kind in ("max", "min"):
        passing = [p for p in partials(self) if p.reduce_op == kind]
    elif reduce == "mean" and not _is_inexact(self.dtype):
        passing = []  # an integer mean is rounded
    else:
        passing = linear(self)
    for partial in passing:
        if kind == "product":
            if include_self:
                yield line([partial], (self, partial), (index, REPLICATE), (src, REPLICATE))
        elif is_tensor(src) or partial.reduce_op == "avg":
            # A number is the same on every rank: it would be added once by each.
            yield line([partial], (self, partial), (index, REPLICATE), (src, partial))


def segment_reduce_rows(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Iterator[Row]:
    """`segment_reduce(data, ...)`: reduces runs along `axis`; all other dims are separate."""
    yield from _segment_rows([data], (lengths, indices, offsets), axis)
    for partial in linear(data) if reduce == "sum" and not initial else ():
        rest = [(tensor, REPLICATE) for tensor in (lengths, indices, offsets)]
        yield line([partial], (data, partial), *rest)


def segment_reduce_backward_rows(
    grad: Any,
    output: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: Any = None,
) -> Iterator[Row]:
    """The gradient of `segment_reduce`, linear in `grad`; for a maximum it asks if that is 0."""
    yield from _segment_rows([grad, output, data], (lengths, offsets), axis)
    for partial in linear(grad) if reduce in ("sum", "mean") else ():
        rest = [(tensor, REPLICATE) for tensor in (output, data, lengths, offsets)]
        yield line([partial], (grad, partial), *rest)


def _segment_rows(tensors: list[Any], runs: tuple[Any, ...], axis: int) -> Iterator[Row]:
    rank = len(tensors[0].shape)
    for dim in range(rank):
        if dim == axis % rank:
            continue
        cut = ShardingPlaceholder(dim)
        # Lengths and offsets have the dims of the data up to the axis.
        entry = cut if dim < axis % rank else REPLICATE
        yield line([cut], *((t, cut) for t in tensors), *((run, entry) for run in runs))


def _is_inexact(dtype: Any) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)
