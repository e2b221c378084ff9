"""Gradients of a sharded run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dtensor_registry.placements import Partial, Shard, parse_placements
from dtensor_registry_kit import Verdict, check, draw, run_reference
from dtensor_registry_kit.judging.backward import judge_backward

aten = torch.ops.aten
X, Y, B = (draw(shape, torch.float64, i) for i, shape in enumerate([(8, 4), (4, 6), (4,)]))


class ScaledByRows(torch.autograd.Function):
    """Twice its input; its gradient forgets that, and divides by the number of rows it sees."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 2 / grads[0].shape[0]


class RaisesOnShort(torch.autograd.Function):
    """Its backward takes eight rows and no others."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return 2 * grads[0].reshape(8, -1)


def backward(op: Any, args: Sequence[Any], row: str, ranks: int = 2) -> Verdict:
    outputs, inputs = (parse_placements(part) for part in row.split("<-"))
    return judge_backward(run_reference(op, args), [*outputs, *inputs], ranks)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("op", "args", "row"),
    [
        (aten.mm.default, (X, Y), "S(0) <- S(0), R"),
        (aten.mm.default, (X, Y), "P(sum) <- S(1), S(0)"),
        (aten.mm.default, (X, Y), "P(sum) <- P(sum), R"),
        (aten.mm.default, (X, Y), "P(avg) <- R, P(avg)"),
        (aten.mul.Tensor, (X, B), "S(0) <- S(0), R"),
        (aten.mul.Tensor, (X, B), "S(1) <- S(1), S(0)"),
        (aten.add.Tensor, (X, B), "P(avg) <- P(avg), R"),
        (aten.relu.default, (X,), "P(max) <- P(max)"),
        (aten.amax.default, (X, [0]), "P(max) <- S(0)"),
        (aten.neg.default, (X,), "P(min) <- P(max)"),
        (aten.tanh.default, (X,), "S(0) <- S(0)"),
        (aten.max.dim, (X, 0), "S(0), S(0) <- S(1)"),
        (aten.split.Tensor, (X, 3), "S(1), S(1), S(1) <- S(1)"),
        (aten.embedding.default, (X, torch.tensor([1, 0, 7, 7])), "S(0) <- R, S(0)"),
        (torch.sum, (X,), "P(sum) <- S(1)"),
    ],
)
def test_gradients_of_a_right_row_are_those_of_the_whole_run(
    op: Any, args: Sequence[Any], row: str, ranks: int
) -> None:
    assert backward(op, args, row, ranks).outcome == "sound"


def test_a_backward_that_depends_on_the_local_size_is_caught() -> None:
    found = backward(ScaledByRows.apply, (X,), "S(0) <- S(0)")
    assert found.outcome == "unsound"
    assert found.evidence.startswith("the gradient of input 0 on rank 0 at [")


def test_a_backward_that_raises_on_pieces_is_a_crash_with_its_rank() -> None:
    found = backward(RaisesOnShort.apply, (X,), "S(1) <- S(1)")
    assert found.outcome == "sound"
    found = backward(RaisesOnShort.apply, (draw((8, 3), torch.float64, 0),), "S(0) <- S(0)")
    assert found.outcome == "crash"
    assert found.evidence.startswith("the backward of rank 0 raises RuntimeError: ")


@pytest.mark.parametrize(
    ("op", "args", "row", "reason"),
    [
        (aten.add_.Tensor, (X, X), "S(0) <- S(0), S(0)", "the op writes to its arguments"),
        (aten.argsort.default, (X,), "S(0) <- S(0)", "no gradient: RuntimeError: "),
        (aten.mul.Tensor, (X, B), "P(product) <- P(product), R", "P(product) has no gradient"),
        (aten.neg.default, (X[:1],), "S(0) <- S(0)", "dim 0 of input 0 has 1 elements"),
    ],
)
def test_what_has_no_gradient_to_compare_is_not_applicable(
    op: Any, args: Sequence[Any], row: str, reason: str
) -> None:
    found = backward(op, args, row)
    assert found.outcome == "not applicable"
    assert found.evidence.startswith(reason)


def test_check_reports_a_wrong_backward_of_a_row_that_is_right_forward() -> None:
    report = check(ScaledByRows.apply, [((X,), {})], lambda op, a, k: [[Shard(0), Shard(0)]])
    assert [(f.kind, f.about) for f in report.errors] == [("backward", "S(0) <- S(0)")]


def test_check_passes_the_same_rule_for_an_op_with_a_right_backward() -> None:
    report = check(aten.mul.Scalar, [((X, 2.0), {})], lambda op, a, k: [[Partial(), Partial()]])
    assert report.is_trusted
