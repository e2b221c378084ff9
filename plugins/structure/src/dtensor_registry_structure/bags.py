"""Embedding bags: rows of a table, picked by index, then added, averaged or compared per bag.

The columns of the table are separate; its rows are not, since indices count through all of them,
nor are bags, since their offsets count through all indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dtensor_registry import REPLICATE, Partial, ShardingPlaceholder, is_tensor
from dtensor_registry_structure.arguments import Row, line, linear

_MAX = 2
"""A value of `mode`. Source: `torch.nn.functional.embedding_bag`: sum 0, mean 1, max 2."""

_COLUMNS = ShardingPlaceholder(1)


def embedding_bag_rows(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Iterator[Row]:
    """`_embedding_bag` -> (output, offset2bag, bag_size, max_indices)."""
    largest = _COLUMNS if mode == _MAX else REPLICATE
    rest = [(indices, REPLICATE), (offsets, REPLICATE)]
    scales = (per_sample_weights, REPLICATE)
    yield line([_COLUMNS, REPLICATE, REPLICATE, largest], (weight, _COLUMNS), *rest, scales)
    if mode == _MAX:
        return
    for partial in linear(weight):
        outputs = [partial, REPLICATE, REPLICATE, REPLICATE]
        yield line(outputs, (weight, partial), *rest, scales)
        if is_tensor(per_sample_weights):
            yield line(outputs, (weight, REPLICATE), *rest, (per_sample_weights, partial))


def embedding_bag_backward_rows(
    grad: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Iterator[Row]:
    """`_embedding_bag_backward`: the gradient of the table; a sparse one has no placement."""
    if not sparse:
        before = (indices, offsets, offset2bag, bag_size)
        yield from _table_rows(grad, before, maximum_indices, mode, per_sample_weights)


def embedding_bag_dense_backward_rows(
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Iterator[Row]:
    """`_embedding_bag_dense_backward`: the gradient of the table."""
    before = (indices, offset2bag, bag_size)
    yield from _table_rows(grad, before, maximum_indices, mode, per_sample_weights)


def embedding_bag_scales_backward_rows(
    grad: Any,
    weight: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    mode: int,
    padding_idx: int = -1,
) -> Iterator[Row]:
    """`_embedding_bag_per_sample_weights_backward`: a sum over columns, linear in both."""
    rest = [(tensor, REPLICATE) for tensor in (indices, offsets, offset2bag)]
    yield line([Partial("sum")], (grad, _COLUMNS), (weight, _COLUMNS), *rest)
    for partial in linear(grad):
        yield line([partial], (grad, partial), (weight, REPLICATE), *rest)
        yield line([partial], (grad, REPLICATE), (weight, partial), *rest)


def _table_rows(
    grad: Any, before: tuple[Any, ...], maximum_indices: Any, mode: int, scales: Any
) -> Iterator[Row]:
    rest = [(tensor, REPLICATE) for tensor in before]
    largest = _COLUMNS if mode == _MAX else REPLICATE
    scaled = (scales, REPLICATE)
    yield line([_COLUMNS], (grad, _COLUMNS), *rest, (maximum_indices, largest), scaled)
    for partial in linear(grad):
        yield line([partial], (grad, partial), *rest, (maximum_indices, REPLICATE), scaled)
