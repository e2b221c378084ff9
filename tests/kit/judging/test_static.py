"""What is said of a row on its face, word for word."""

from __future__ import annotations

from typing import Any

import pytest
from torch.distributed.tensor import Partial as TorchPartial
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

from dtensor_registry.placements import REPLICATE, Partial, Shard, ShardingPlaceholder, StridedShard
from dtensor_registry.rules.well_formed import plain, problem, show_row

R = REPLICATE
S = ShardingPlaceholder
PLACEMENTS = "which is no placement; use Shard, ShardingPlaceholder, REPLICATE or Partial"
KINDS = "sum, avg, product, min, max, band, bor, bxor"


@pytest.mark.parametrize(
    "row",
    [
        [S(0), S(0), R],
        (S(1), S(1), R),
        [Shard(0), TorchShard(0), TorchReplicate()],
        [Partial("max"), TorchPartial("max"), R],
        [_ShardingPlaceholder(1), _ShardingPlaceholder(1), R],
        [StridedShard(0, 2), _StridedShard(0, split_factor=2), R],
    ],
)
def test_a_row_of_our_placements_or_of_torchs_has_no_problem(row: Any) -> None:
    assert problem(row, 1, [2, 1], [2]) is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "S(0), S(0), R",
            "a row is a list of placements, this one is 'S(0), S(0), R' of type str",
        ),
        (
            [],
            "the row has 0 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
            " 3 entries",
        ),
        (
            [S(0), S(0)],
            "the row has 2 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
            " 3 entries",
        ),
        (
            [S(0), S(0), R, R],
            "the row has 4 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
            " 3 entries",
        ),
        (["S(0)", S(0), R], f"output 0 has 'S(0)' of type str, {PLACEMENTS}"),
        ([S(0), 0, R], f"input 0 has 0 of type int, {PLACEMENTS}"),
        ([S(0), S(2), R], "input 0 has S(2), but is a 2-dim tensor"),
        ([S(2), S(0), R], "output 0 has S(2), but is a 2-dim tensor"),
        ([S(0), S(0), S(1)], "input 1 has S(1), but is a 1-dim tensor"),
        (
            [S(0), S(-1), R],
            "input 0 has S(-1): tensor dims in rows are counted from the front; for 2 dims"
            " write S(1)",
        ),
        (
            [TorchShard(-3), S(0), R],
            "output 0 has S(-3): tensor dims in rows are counted from the front",
        ),
        ([S(0), S("0"), R], "input 0 has a shard on '0' of type str; a tensor dim is an int"),
        ([Partial("mean"), R, R], f"output 0 has P(mean): a reduction is one of {KINDS}"),
        ([S(0), None, R], "input 0 is a tensor, but has no placement (None)"),
        ([None, S(0), R], "output 0 is a tensor, but has no placement (None)"),
    ],
)
def test_a_row_that_is_no_row_is_told_so_in_exact_words(row: Any, message: str) -> None:
    assert problem(row, 1, [2, 1], [2]) == message


def test_a_masked_output_takes_none_and_nothing_else() -> None:
    assert problem([S(0), None, S(0)], 2, [2], [2, None]) is None
    assert problem([S(0), S(0), S(0)], 2, [2], [2, None]) == (
        "output 1 is no tensor in this call, but has S(0)"
    )


def test_outputs_of_unknown_rank_are_checked_for_all_that_can_be_known() -> None:
    assert problem([S(7), S(0)], 1, [1]) is None
    assert problem([None, S(0)], 1, [1]) is None
    assert problem([S(-1), S(0)], 1, [1]) == (
        "output 0 has S(-1): tensor dims in rows are counted from the front"
    )


def test_an_output_that_is_an_input_must_be_placed_like_it() -> None:
    assert problem([S(0), S(0), R], 1, [2, 2], [2], tied=[(0, 0)]) is None
    assert problem([S(0), TorchShard(0), R], 1, [2, 2], [2], tied=[(0, 0)]) is None
    assert problem([S(0), R, R], 1, [2, 2], [2], tied=[(0, 0)]) == (
        "output 0 is the same tensor as input 0, but has S(0) where the input has R; a mutated"
        " argument keeps its placement"
    )


def test_a_partial_that_knows_more_than_its_reduction_keeps_torchs_object() -> None:
    mask = _MaskPartial("sum", offset_shape=None, offset_dim=0)
    assert plain(mask) == Partial("sum", native=mask)
    assert problem([mask, R], 1, [1]) is None


def test_what_is_no_placement_is_read_as_none() -> None:
    assert [plain(entry) for entry in ("R", 0, None, [R])] == [None] * 4


@pytest.mark.parametrize(
    ("row", "inputs", "shown"),
    [
        ([S(0), Partial("sum"), R], 2, "S(0) <- P(sum), R"),
        ([R], 1, "() <- R"),
        ([S(0), None, TorchShard(1)], 1, "S(0), - <- S(1)"),
        (["S(0)", R], 1, "'S(0)' <- R"),
        ("S(0)", 1, "'S(0)'"),
    ],
)
def test_a_row_prints_outputs_from_inputs(row: Any, inputs: int, shown: str) -> None:
    assert show_row(row, inputs) == shown
