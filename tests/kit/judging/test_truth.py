"""Ground truth for single rows: a table of what is right and what is wrong, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Shard,
    ShardingPlaceholder,
    StridedShard,
    parse_placements,
)
from dtensor_registry_kit import Verdict, check_row, draw, judge, run_reference

aten = torch.ops.aten
X, Y, B = (draw(shape, torch.float64, i) for i, shape in enumerate([(8, 4), (4, 6), (4,)]))
MASK = X > 0.3
INDEX = torch.tensor([5, 0, 7, 2, 2])


def placed(row: str) -> list[Any]:
    """Read `outputs <- inputs`; `-` stands for an output that is no tensor."""
    entries = [part.strip() for part in row.replace("<-", ",").split(",")]
    return [None if e == "-" else parse_placements(e)[0] for e in entries if e]


def verdict(op: Any, args: Sequence[Any], row: str, ranks: int = 2, **kwargs: Any) -> Verdict:
    return check_row(op, args, kwargs, placed(row), ranks)


SOUND = [
    (aten.mm.default, (X, Y), "S(0) <- S(0), R"),
    (aten.mm.default, (X, Y), "P(sum) <- S(1), S(0)"),
    (aten.mm.default, (X, Y), "P(avg) <- R, P(avg)"),
    (aten.add.Tensor, (X, X), "P(sum) <- P(sum), P(sum)"),
    (aten.add.Tensor, (X, B), "P(avg) <- P(avg), R"),
    (aten.add.Tensor, (X, B), "P(max) <- P(max), R"),
    (aten.neg.default, (X,), "P(min) <- P(max)"),
    (aten.relu.default, (X,), "P(max) <- P(max)"),
    (aten.sum.default, (X,), "P(sum) <- S(1)"),
    (aten.amax.default, (X, [0]), "P(max) <- S(0)"),
    (aten.any.dim, (MASK, 0), "P(sum) <- S(0)"),
    (aten.all.dim, (MASK, 0), "P(product) <- S(0)"),
    (aten.max.dim, (X, 0), "S(0), S(0) <- S(1)"),
    (aten.where.self, (MASK, X, X * 2), "P(sum) <- R, P(sum), P(sum)"),
    (aten.index_select.default, (X, 0, INDEX), "S(0) <- R, S(0)"),
    (aten.split.Tensor, (X, 3), "S(1), S(1), S(1) <- S(1)"),
    (aten.stack.default, ([X, X * 2], 0), "S(1) <- S(0), S(0)"),
    (aten.add_.Tensor, (X, X), "P(sum) <- P(sum), P(sum)"),
    (aten.bitwise_and.Tensor, (INDEX, INDEX + 1), "P(bxor) <- P(bxor), R"),
]

UNSOUND = [
    (aten.mul.Tensor, (X, X), "P(sum) <- P(sum), P(sum)"),
    (aten.mul.Tensor, (X, X), "P(max) <- P(max), R"),
    (aten.mm.default, (X, Y), "R <- S(1), S(0)"),
    (aten.mm.default, (X, Y), "P(avg) <- S(1), S(0)"),
    (aten.add.Tensor, (X, B), "P(sum) <- P(sum), R"),
    (aten.neg.default, (X,), "P(max) <- P(max)"),
    (aten.relu.default, (X,), "P(sum) <- P(sum)"),
    (aten.relu.default, (X,), "P(sum) <- P(max)"),
    (aten.relu.default, (X,), "S(1) <- S(0)"),
    (aten.max.dim, (X, 0), "P(max), P(max) <- S(0)"),
    (aten.any.dim, (MASK, 0), "P(product) <- S(0)"),
    (aten.cumsum.default, (X, 0), "S(0) <- S(0)"),
    (aten.softmax.int, (X, 0), "S(0) <- S(0)"),
    (aten.flip.default, (X, [0]), "S(0) <- S(0)"),
    (aten.split.Tensor, (X, 3), "S(0), S(0), S(0) <- S(0)"),
    (aten.add_.Tensor, (X, B), "P(sum) <- P(sum), R"),
    (aten.bitwise_xor.Tensor, (INDEX, INDEX + 1), "P(bxor) <- P(bxor), R"),
]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("op", "args", "row"), SOUND, ids=[f"{op} {row}" for op, _, row in SOUND])
def test_a_right_row_is_sound_on_any_number_of_ranks(
    op: Any, args: Sequence[Any], row: str, ranks: int
) -> None:
    assert str(verdict(op, args, row, ranks)) == f"sound: {row} on {ranks} ranks"


@pytest.mark.parametrize(
    ("op", "args", "row"), UNSOUND, ids=[f"{op} {row}" for op, _, row in UNSOUND]
)
def test_a_wrong_row_is_unsound(op: Any, args: Sequence[Any], row: str) -> None:
    assert verdict(op, args, row).outcome == "unsound"


def test_evidence_names_output_place_and_both_numbers() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    assert str(verdict(aten.sum.default, (x,), "P(max) <- S(0)")) == (
        "unsound: P(max) <- S(0) on 2 ranks: output 0, reduced over the ranks as P(max), 7.0,"
        " whole run 10.0 (largest difference 3, of which rounding explains 8.9e-14)"
    )
    assert str(verdict(aten.cumsum.default, (x, 0), "S(0) <- S(0)")) == (
        "unsound: S(0) <- S(0) on 2 ranks: output 0 on rank 1 at [0, 1]: 4.0, whole run 6.0"
        " (largest difference 2, of which rounding explains 5.3e-14)"
    )


def test_pieces_that_concatenate_but_lie_on_other_ranks_than_dtensor_cuts_are_unsound() -> None:
    uneven = draw((5, 2), torch.float64, 0)  # 3 + 2 rows, but 10 rows are 5 + 5
    found = verdict(aten.repeat_interleave.self_int, (uneven, 2, 0), "S(0) <- S(0)")
    assert found.evidence == "output 0 on rank 0 shape (6, 2), whole run (5, 2)"


def test_every_replica_is_compared() -> None:
    found = verdict(aten.sum.default, (X,), "R <- S(0)")
    assert found.evidence.startswith("output 0 on rank 0 ")


@pytest.mark.parametrize("ranks", [2, 3])
def test_mean_of_an_even_split_is_right_and_of_an_uneven_one_wrong(ranks: int) -> None:
    found = verdict(aten.mean.dim, (X, [0]), "P(avg) <- S(0)", ranks)
    assert found.outcome == ("sound" if ranks == 2 else "unsound")


def test_an_out_argument_takes_part() -> None:
    out = torch.empty(8, 4, dtype=torch.float64)
    assert (
        verdict(aten.add.out, (X, X), "P(sum) <- P(sum), P(sum), P(sum)", out=out).outcome
        == "sound"
    )
    found = verdict(aten.add.out, (X, X), "S(0) <- S(0), S(0), S(1)", out=out)
    assert found.outcome == "malformed"
    assert "output 0 is the same tensor as input 2, but has S(0)" in found.evidence


def test_an_argument_that_is_written_to_but_not_returned_is_compared() -> None:
    def axpy(y: torch.Tensor, x: torch.Tensor) -> None:
        y.add_(x, alpha=2)

    assert verdict(axpy, (X, X), "S(0), S(0)").outcome == "sound"
    assert verdict(axpy, (X, X), "P(sum), P(sum)").outcome == "sound"
    found = verdict(axpy, (X, X), "P(sum), R")
    assert found.outcome == "unsound"
    assert found.evidence.startswith("input 0, which the op writes to,")


def test_arguments_are_left_as_they_were() -> None:
    before = X.clone()
    verdict(aten.relu_.default, (X,), "S(0) <- S(0)")
    verdict(aten.relu_.default, (X.abs(),), "P(sum) <- P(sum)")
    assert torch.equal(X, before)


def test_an_op_that_writes_to_its_piece_only_on_some_ranks_does_not_spoil_later_rows() -> None:
    whole = run_reference(aten.relu_.default, (X.abs(),))
    rows = [placed("P(sum) <- P(sum)"), placed("S(0) <- S(0)")]
    first = [str(judge(whole, [row], (2,))) for row in rows]
    assert [str(judge(whole, [row], (2,))) for row in rows] == first
    assert first[1].startswith("sound")


def test_what_is_no_tensor_must_be_the_same_on_every_rank() -> None:
    def longest(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x * 2, x.shape[0]

    assert verdict(longest, (X,), "S(1), - <- S(1)").outcome == "sound"
    assert verdict(longest, (X,), "S(1) <- S(1)").outcome == "sound"
    found = verdict(longest, (X,), "S(0), - <- S(0)")
    assert found.evidence == "output 1 on rank 0 4, whole run 8"


def test_a_masked_output_has_none_in_the_row_or_no_entry() -> None:
    grad = draw((8, 4), torch.float64, 9)
    args = (grad, X, [4], *aten.native_layer_norm(X, [4], B, None, 1e-5)[1:], B, None)
    masked = (*args, [True, False, False])
    op = aten.native_layer_norm_backward.default
    assert verdict(op, masked, "S(0), -, - <- S(0), S(0), S(0), S(0), R").outcome == "sound"
    assert verdict(op, masked, "S(0) <- S(0), S(0), S(0), S(0), R").outcome == "sound"
    full = (*args, [True, True, False])
    assert verdict(op, full, "S(0), P(sum), - <- S(0), S(0), S(0), S(0), R").outcome == "sound"
    assert verdict(op, full, "S(0), R, - <- S(0), S(0), S(0), S(0), R").outcome == "unsound"


def test_none_among_the_arguments_takes_no_entry() -> None:
    values = draw((8, 4), torch.float64, 2)
    args = (values, [None, torch.tensor([1, 3, 0])])
    assert verdict(aten.index.Tensor, args, "S(0) <- S(0), R").outcome == "sound"


@pytest.mark.parametrize("whole", [torch.zeros(4, 2), torch.full((4, 2), 3.0)])
def test_a_plain_result_is_untested_and_never_passes(whole: torch.Tensor) -> None:
    found = verdict(aten.abs.default, (whole,), "S(0) <- S(0)")
    assert (found.outcome, found.untested) == ("untested", (0,))


def test_a_plain_result_still_refutes_a_wrong_row() -> None:
    assert verdict(aten.ones_like.default, (X,), "P(sum) <- S(0)").outcome == "unsound"


def test_each_output_is_put_to_the_test_on_its_own() -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 0

    assert verdict(two, (X,), "S(0), S(0) <- S(0)").untested == (1,)


def test_a_random_op_is_untested() -> None:
    found = verdict(aten.bernoulli.p, (X, 0.5), "S(0) <- S(0)")
    assert found.outcome == "untested"
    assert "another result when run again" in found.evidence


def test_an_op_that_refuses_the_whole_call_is_untested() -> None:
    found = verdict(aten.mm.default, (X, X), "S(0) <- S(0), R")
    assert found.outcome == "untested"
    assert found.evidence.startswith("the op raises on whole tensors: RuntimeError: ")


def test_a_crash_names_rank_and_local_shapes() -> None:
    found = verdict(aten.mm.default, (X, Y), "S(0) <- S(1), R")
    assert found.outcome == "crash"
    assert found.evidence.startswith("rank 0 with local shapes (8, 2), (4, 6) raises RuntimeError:")
    assert not found.on_empty


def test_a_crash_on_an_empty_piece_is_told_from_other_crashes() -> None:
    found = verdict(aten.amax.default, (draw((5, 2), torch.float64, 0), [0]), "P(max) <- S(0)", 4)
    assert (found.outcome, found.on_empty) == ("crash", True)


def test_a_dim_smaller_than_the_mesh_is_not_applicable_unless_asked_for() -> None:
    row = placed("P(sum) <- S(0)")
    found = check_row(aten.sum.default, (X[:1],), {}, row, 2)
    assert str(found) == (
        "not applicable: P(sum) <- S(0) on 2 ranks: dim 0 of input 0 has 1 elements for 2 ranks"
    )
    assert check_row(aten.sum.default, (X[:1],), {}, row, 2, allow_empty=True).outcome == "sound"


def test_an_empty_tensor_is_no_evidence() -> None:
    assert verdict(aten.relu.default, (X[:0],), "S(1) <- S(1)").outcome == "untested"


def test_strided_shards_and_stateful_partials_are_not_judged() -> None:
    row = [StridedShard(0, 2), StridedShard(0, 2)]
    assert check_row(aten.relu.default, (X,), {}, row, 2).outcome == "not applicable"


def test_a_partial_that_the_dtype_cannot_have_is_not_applicable() -> None:
    found = verdict(aten.logical_not.default, (MASK,), "P(avg) <- P(avg)")
    assert (found.outcome, found.evidence) == (
        "not applicable",
        "P(avg) of bool cannot be simulated",
    )


def test_torchs_placements_and_placeholders_mean_the_same_as_ours() -> None:
    torchs = [TorchShard(0), TorchShard(0), TorchReplicate()]
    ours = [ShardingPlaceholder(0), Shard(0), REPLICATE]
    found = [str(check_row(aten.mm.default, (X, Y), {}, row, 2)) for row in (torchs, ours)]
    assert found == ["sound: S(0) <- S(0), R on 2 ranks"] * 2


def test_two_rows_on_a_mesh_of_two_dims_are_judged_together() -> None:
    whole = run_reference(aten.mm.default, (X, Y))
    rows = [placed("S(0) <- S(0), R"), placed("P(sum) <- S(1), S(0)")]
    assert str(judge(whole, rows, (2, 2))) == (
        "sound: S(0) <- S(0), R and P(sum) <- S(1), S(0) on 2x2 ranks"
    )
    wrong = [placed("S(0) <- S(0), R"), placed("R <- S(1), S(0)")]
    assert judge(whole, wrong, (2, 2)).outcome == "unsound"


def test_kinds_of_partial_are_not_mixed_on_one_tensor() -> None:
    whole = run_reference(aten.neg.default, (X,))
    rows = [placed("P(sum) <- P(sum)"), placed("P(min) <- P(max)")]
    found = judge(whole, rows, (2, 2))
    assert (found.outcome, found.evidence) == (
        "not applicable",
        "partials of different kinds on one tensor",
    )


@pytest.mark.parametrize("row", ["P(sum) <- P(sum), R", "P(avg) <- P(avg), R"])
def test_infinite_parts_of_both_signs_are_no_fault_where_the_whole_is_infinite(row: str) -> None:
    divisor = torch.tensor([0.0, 1.0, -2.0, 3.0], dtype=torch.float64)
    assert verdict(aten.div.Tensor, (X, divisor), row).outcome == "sound"


def test_infinity_instead_of_a_number_is_a_fault() -> None:
    def guarded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x / torch.where(x > -2.5, y, 0)

    found = verdict(guarded, (X, B), "P(sum) <- P(sum), R")
    assert found.outcome == "unsound"


def test_the_same_seed_gives_the_same_evidence() -> None:
    args = (aten.mul.Tensor, (X, X), {}, [Partial()] * 3, 2)
    assert check_row(*args, seed=4) == check_row(*args, seed=4)
    assert check_row(*args, seed=4) != check_row(*args, seed=5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_rounding_of_the_dtype_is_no_fault(dtype: torch.dtype) -> None:
    x, y = (draw(shape, torch.float64, i) * 4 for i, shape in enumerate([(16, 64), (64, 16)]))
    row = placed("P(sum) <- S(1), S(0)")
    found = check_row(aten.mm.default, (x.to(dtype), y.to(dtype)), {}, row, 4)
    assert found.outcome == "sound"


def test_sparse_tensors_are_untested() -> None:
    found = verdict(aten.neg.default, (X.to_sparse(),), "R <- R")
    assert found.outcome == "untested"
    assert "plain dense tensors" in found.evidence


def test_what_equal_says_is_the_logical_and_of_what_the_ranks_say() -> None:
    x = torch.arange(4.0)
    other = torch.tensor([0.0, 1.0, 2.0, 9.0])  # rank 0 finds its pieces equal
    row = [Shard(0), Shard(0)]
    assert not check_row(torch.ops.aten.equal.default, (x, other), {}, row, 2).is_wrong
    assert check_row(torch.equal, (x, other), {}, row, 2).is_wrong  # of any op but that


def test_without_empty_pieces_a_row_is_not_tried_where_a_rank_would_hold_nothing() -> None:
    whole = run_reference(torch.sin, (torch.arange(1.0, 5.0),))
    row = [Shard(0), Shard(0)]
    assert judge(whole, [row], (3,), allow_empty=None).outcome == "not applicable"
    assert judge(whole, [row], (3,)).outcome == "sound"
    assert judge(whole, [row], (2,), allow_empty=None).outcome == "sound"
