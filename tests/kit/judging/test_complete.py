"""The search for rows that are right and not offered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dtensor_registry.placements import Partial, Shard
from dtensor_registry.rules import einsum
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry_kit import check, draw, run_reference
from dtensor_registry_kit.judging.completeness import missing_rows

aten = torch.ops.aten
X, Y, Z = (draw(shape, torch.float64, i) for i, shape in enumerate([(8, 4), (4, 6), (8, 4)]))


def found(
    op: Any, args: Sequence[Any], offered: Sequence[Any] = (), budget: int = 500, **kwargs: Any
) -> list[str]:
    whole = run_reference(op, args, kwargs)
    grown = [draw([s + 1 for s in t.shape], t.dtype, i + 9) for i, t in enumerate(whole.inputs)]
    confirm = []
    if not kwargs and all(isinstance(value, torch.Tensor) for value in args):
        confirm.append(run_reference(op, grown))
    rows, _ = missing_rows(whole, offered, confirm, budget)
    return [show_row(missing.row, len(whole.inputs)) for missing in rows]


def test_every_row_of_a_matrix_product_is_found() -> None:
    assert sorted(found(aten.mm.default, (X, Y))) == [
        "P(avg) <- P(avg), R",
        "P(avg) <- R, P(avg)",
        "P(sum) <- P(sum), R",
        "P(sum) <- R, P(sum)",
        "P(sum) <- S(1), S(0)",
        "S(0) <- S(0), R",
        "S(1) <- R, S(1)",
    ]


def test_rows_that_are_offered_are_not_missing() -> None:
    offered = [[Partial(), Shard(1), Shard(0)], [Shard(0), Shard(0), Shard(1)]]
    assert not {"P(sum) <- S(1), S(0)"} & set(found(aten.mm.default, (X, Y), offered))


def test_order_preserving_ops_pass_extremes() -> None:
    assert sorted(found(aten.exp.default, (X,))) == [
        "P(max) <- P(max)",
        "P(min) <- P(min)",
        "S(0) <- S(0)",
        "S(1) <- S(1)",
    ]


def test_a_row_that_holds_on_two_ranks_alone_is_not_found() -> None:
    # Even pieces of 8 rows have a mean each; three ranks hold 3, 3 and 2 rows.
    assert "P(avg) <- S(0)" not in found(aten.mean.dim, (X, [0]))


def test_outputs_are_spread_each_in_its_own_way() -> None:
    assert "S(0), S(0) <- S(1)" in found(aten.max.dim, (X, 0))
    assert not any("<- S(0)" in row for row in found(aten.max.dim, (X, 0)))


def test_dims_of_which_one_is_a_multiple_of_the_other_are_cut_together() -> None:
    heads = draw((8, 4), torch.float64, 0), draw((2, 4), torch.float64, 1)

    def grouped(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q * k.repeat_interleave(q.shape[0] // k.shape[0], 0)

    whole = run_reference(grouped, heads)
    rows, _ = missing_rows(whole, [], [], 500)
    assert "S(0) <- S(0), S(0)" in [show_row(missing.row, 2) for missing in rows]


def test_an_out_argument_follows_the_output() -> None:
    out = torch.empty(8, 4, dtype=torch.float64)
    rows = found(aten.mul.out, (X, Z), out=out)
    assert "S(0) <- S(0), S(0), S(0)" in rows
    assert all(row.split(" <- ")[0] == row.rsplit(", ", 1)[1] for row in rows)


def test_an_in_place_op_keeps_the_placement_of_its_argument() -> None:
    rows = found(aten.mul_.Tensor, (X, Z))
    assert {"S(0) <- S(0), S(0)", "P(sum) <- P(sum), R"} <= set(rows)
    assert "P(sum) <- R, P(sum)" not in rows


def test_many_inputs_cut_alike_are_found_within_a_small_budget() -> None:
    tensors = [draw((4, 4), torch.float64, i) for i in range(8)]
    rows = found(aten.stack.default, (tensors,), budget=20)
    assert any(row == "S(1) <- " + ", ".join(["S(0)"] * 8) for row in rows)


def test_the_budget_bounds_the_search() -> None:
    whole = run_reference(aten.mm.default, (X, Y))
    assert missing_rows(whole, [], [], 5)[1] == 5
    assert missing_rows(whole, [], [], 0) == ([], 0)


def test_the_row_that_saves_most_comes_first() -> None:
    big, small = draw((64, 32), torch.float64, 0), draw((32, 2), torch.float64, 1)
    rows, _ = missing_rows(run_reference(aten.mm.default, (big, small)), [], [], 500)
    assert [missing.saves for missing in rows] == sorted((m.saves for m in rows), reverse=True)
    assert show_row(rows[0].row, 2) in ("P(sum) <- P(sum), R", "P(avg) <- P(avg), R")
    assert show_row(rows[-1].row, 2) == "S(1) <- R, S(1)"


@pytest.mark.parametrize("equation", ["mk,kn->mn", "bmk,bkn->bmn"])
def test_the_einsum_template_leaves_nothing_to_find(equation: str) -> None:
    sizes = {"b": 4, "m": 6, "k": 4, "n": 5}
    operands = equation.split("->")[0].split(",")
    args = [
        draw([sizes[letter] for letter in letters], torch.float64, i)
        for i, letters in enumerate(operands)
    ]
    op = aten.mm.default if len(operands[0]) == 2 else aten.bmm.default
    report = check(op, [(args, {})], einsum(equation))
    assert report.is_trusted
    assert report.of_kind("missing") == ()
