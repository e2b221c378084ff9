"""The simulated mesh hands out what DTensor would, and what it hands out adds up."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Shard as TorchShard

from dtensor_registry.placements import REPLICATE, Partial, Shard
from dtensor_registry_kit.samples.sample import draw
from dtensor_registry_kit.simulation.distribute import (
    chunk,
    distribute,
    on_grid,
    reduce_parts,
    split_partial,
)

FLOATS = (torch.float64, torch.float32)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def values(dtype: torch.dtype, seed: int) -> torch.Tensor:
    if dtype in FLOATS:
        return draw((4, 3), dtype, seed)
    return torch.randint(
        0, 2 if dtype == torch.bool else 100, (4, 3), generator=generator(seed)
    ).to(dtype)


@given(size=st.integers(0, 12), count=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_a_tensor_is_cut_where_torch_cuts_it(size: int, count: int) -> None:
    for rank in range(count):
        piece = chunk(torch.arange(size), 0, rank, count)
        length, offset = TorchShard.local_shard_size_and_offset(size, count, rank)
        assert piece.tolist() == list(range(offset, offset + length))


ADDING_UP = [
    (reduce_op, dtype)
    for reduce_op in ("sum", "avg", "max", "min", "product")
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int8, torch.uint8)
    # Summing all ranks' parts wraps round in 8 bits before avg divides, in an all-reduce as well.
    if reduce_op != "avg" or dtype.itemsize > 1
]


@pytest.mark.parametrize(("reduce_op", "dtype"), ADDING_UP)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_of_a_partial_reduce_to_the_value(
    reduce_op: str, dtype: torch.dtype, count: int
) -> None:
    whole = values(dtype, 1)
    parts = split_partial(whole, reduce_op, count, generator(0))
    assert all(part.dtype == dtype for part in parts)
    torch.testing.assert_close(reduce_parts(parts, reduce_op), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64])
@pytest.mark.parametrize("size", [0.1, 1.0, 900.0])
@pytest.mark.parametrize("placements", [["sum"], ["avg"], ["sum", "avg"], ["avg", "sum"]])
def test_parts_of_values_on_a_grid_reduce_to_them_exactly_in_any_order(
    placements: list[str], size: float, dtype: torch.dtype
) -> None:
    drawn = draw((5, 4), torch.complex128 if dtype.is_complex else torch.float64, 2) * size
    whole = on_grid(drawn.to(dtype))
    torch.testing.assert_close(whole, drawn.to(dtype), rtol=0, atol=2e-5 * max(size, 1.0))
    if len(placements) == 1:
        parts = split_partial(whole, placements[0], 4, generator(1))
        assert all(torch.equal(reduce_parts(p, placements[0]), whole) for p in permutations(parts))
        return
    outer, inner = placements
    held = distribute(whole, (Partial(outer), Partial(inner)), (2, 2), generator(1))
    rows = [reduce_parts(held[:2], inner), reduce_parts(held[2:], inner)]
    columns = [reduce_parts(held[::2], outer), reduce_parts(held[1::2], outer)]
    assert torch.equal(reduce_parts(rows, outer), whole)
    assert torch.equal(reduce_parts(columns, inner), whole)


@pytest.mark.parametrize("reduce_op", ["sum", "max", "min", "product"])
def test_parts_of_truth_values_reduce_to_the_value(reduce_op: str) -> None:
    whole = values(torch.bool, 1)
    parts = split_partial(whole, reduce_op, 3, generator(0))
    assert torch.equal(reduce_parts(parts, reduce_op), whole)
    assert not all(torch.equal(part, whole) for part in parts)


@pytest.mark.parametrize("reduce_op", ["band", "bor", "bxor"])
def test_parts_of_bits_reduce_to_the_value(reduce_op: str) -> None:
    whole = values(torch.int64, 1)
    parts = split_partial(whole, reduce_op, 3, generator(0))
    assert torch.equal(reduce_parts(parts, reduce_op), whole)
    assert not any(torch.equal(part, whole) for part in parts)


@pytest.mark.parametrize("reduce_op", ["sum", "avg", "max", "min", "product"])
def test_no_rank_alone_holds_the_value_and_no_two_hold_the_same(reduce_op: str) -> None:
    whole = draw((8, 4), torch.float64, 3)
    parts = split_partial(whole, reduce_op, 3, generator(0))
    for rank, part in enumerate(parts):
        assert not torch.equal(part, whole)
        assert not any(torch.equal(part, other) for other in parts[:rank])
        assert {-1, 1} <= set(part.sign().unique().tolist())


@pytest.mark.parametrize("reduce_op", ["max", "min"])
def test_a_rank_beyond_an_extreme_may_hold_zero_where_there_are_zeros(reduce_op: str) -> None:
    whole = draw((8, 4), torch.float64, 3)
    assert not any((part == 0).any() for part in split_partial(whole, reduce_op, 3, generator(0)))
    whole[0, 0] = 0
    parts = split_partial(whole, reduce_op, 3, generator(0))
    assert torch.equal(reduce_parts(parts, reduce_op), whole)
    assert sum(int((part == 0).sum()) for part in parts) > 3


@pytest.mark.parametrize("reduce_op", ["max", "min"])
def test_extremes_lie_just_beyond_the_value_and_beyond_the_range_of_all(reduce_op: str) -> None:
    whole = draw((8, 4), torch.float64, 3)
    parts = torch.stack(split_partial(whole, reduce_op, 3, generator(0)))
    gaps = (parts - whole).abs()
    assert ((gaps > 0) & (gaps < 1)).any()
    assert (parts < whole.min()).any() if reduce_op == "max" else (parts > whole.max()).any()


@pytest.mark.parametrize(
    ("reduce_op", "dtype"),
    [
        ("band", torch.float32),
        ("max", torch.complex64),
        ("avg", torch.bool),
        ("mode", torch.float32),
    ],
)
def test_a_partial_that_no_tensor_can_be_is_refused(reduce_op: str, dtype: torch.dtype) -> None:
    with pytest.raises(NotImplementedError):
        split_partial(torch.ones(3, dtype=dtype), reduce_op, 2, generator(0))


def test_parts_of_different_shapes_cannot_be_reduced() -> None:
    with pytest.raises(RuntimeError, match=r"different shapes: \(2,\), \(3,\)"):
        reduce_parts([torch.ones(2), torch.ones(3)], "sum")


def test_a_mesh_of_two_dims_nests_shards_and_the_last_dim_runs_fastest() -> None:
    pieces = distribute(torch.arange(8), (Shard(0), Shard(0)), (2, 2), generator(0))
    assert [piece.tolist() for piece in pieces] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    pieces = distribute(torch.arange(4), (REPLICATE, Shard(0)), (2, 2), generator(0))
    assert [piece.tolist() for piece in pieces] == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_a_partial_over_a_shard_adds_up_along_its_mesh_dim() -> None:
    whole = draw((4, 2), torch.float64, 0)
    first, second, third, fourth = distribute(
        whole, (Partial("sum"), Shard(0)), (2, 2), generator(0)
    )
    torch.testing.assert_close(torch.cat([first + third, second + fourth]), whole)


def test_a_piece_keeps_the_order_of_strides() -> None:
    transposed = torch.arange(24.0).reshape(4, 6).t()
    piece = distribute(transposed, (Shard(1),), (2,), generator(0))[0]
    assert piece.stride() == (1, 6)


def test_no_number_is_split_into_infinities_of_both_signs_now_and_then() -> None:
    whole = torch.full((50,), torch.nan)
    parts = split_partial(whole, "sum", 2, generator(0))
    assert not any(part.isinf().any() for part in parts)
    whole[7] = torch.inf
    parts = split_partial(whole, "sum", 2, generator(0))
    assert torch.equal(reduce_parts(parts, "sum").isnan(), whole.isnan())
    assert parts[0].isinf().any()
    assert not parts[0].isinf().all()


def test_an_average_of_integers_does_not_come_out_even() -> None:
    whole = torch.arange(-10, 40)
    parts = split_partial(whole, "avg", 3, generator(0))
    assert torch.equal(reduce_parts(parts, "avg"), whole)
    assert (sum(parts) % 3 != 0).any()


@pytest.mark.parametrize("reduce_op", ["max", "min"])
def test_one_rank_alone_holds_what_is_not_a_number(reduce_op: str) -> None:
    whole = torch.full((50,), torch.nan)
    parts = split_partial(whole, reduce_op, 3, generator(0))
    assert reduce_parts(parts, reduce_op).isnan().all()
    assert sum(int(part.isnan().sum()) for part in parts) == 50
