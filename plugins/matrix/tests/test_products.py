"""Products with arguments that say more than an equation: rows, and why there are no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtensor_registry.placements import parse_placements, show_placements
from dtensor_registry_kit import check_row
from dtensor_registry_matrix.rules import STRATEGIES
from dtensor_registry_matrix.samples import scaled_mm, trilinear

RULES = {name: strategy.rule for strategy in STRATEGIES for name in strategy.names}


def overload(name: str) -> Any:
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def numbers(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def rows_of(name: str, args: tuple[Any, ...]) -> list[str]:
    rows = RULES[name](overload(name), args, {})
    return [show_placements(row).replace("?", "") for row in rows]


# Ranks of both operands, rows that cut a batch dim or m, k, n.
MATMULS = [
    ((4,), (4,), ["P(sum), S(0), S(0)"]),
    ((3, 4), (4,), ["S(0), S(0), R", "P(sum), S(1), S(0)"]),
    ((4,), (2, 4, 5), ["P(sum), S(0), S(1)", "S(0), R, S(0)", "S(1), R, S(2)"]),
    (
        (2, 3, 4),
        (4, 5),
        ["S(0), S(0), R", "S(1), S(1), R", "P(sum), S(2), S(0)", "S(2), R, S(1)"],
    ),
    (
        (1, 3, 4),
        (2, 4, 5),
        ["S(0), R, S(0)", "S(1), S(1), R", "P(sum), S(2), S(1)", "S(2), R, S(2)"],
    ),
]


@pytest.mark.parametrize(("left", "right", "wanted"), MATMULS)
def test_matmul_is_the_product_that_the_ranks_make_it(
    left: tuple[int, ...], right: tuple[int, ...], wanted: list[str]
) -> None:
    args = (numbers(*left), numbers(*right))
    found = rows_of("aten.matmul.default", args)
    assert [row for row in found if "S" in row] == wanted
    for row in RULES["aten.matmul.default"](None, args, {}):
        assert not check_row(torch.ops.aten.matmul.default, args, {}, row, 2).is_wrong


def test_scales_of_rows_are_cut_with_the_rows_and_never_along_their_one_column() -> None:
    args, _ = list(scaled_mm())[1]
    assert rows_of("aten._scaled_mm.default", args) == [
        "S(0), S(0), R, S(0), R",
        "S(1), R, S(1), R, S(1)",
        "P(sum), S(1), S(0), R, R",
    ]
    wrong = parse_placements("P(sum), S(1), S(0), S(1), S(0)")  # a row of torch's
    op = torch.ops.aten._scaled_mm.default
    assert check_row(op, args, {}, wrong, 2, allow_empty=True).is_wrong


def test_a_sum_is_not_left_open_in_eight_bits() -> None:
    args, _ = list(scaled_mm())[3]
    assert not any("P" in row for row in rows_of("aten._scaled_mm.default", args))


def test_integers_of_eight_bits_are_not_taken_as_parts_of_a_sum() -> None:
    a = torch.full((2, 2), 100, dtype=torch.int8)
    assert not any(
        row.endswith(("P(sum), R", "R, P(sum)")) for row in rows_of("aten._int_mm.default", (a, a))
    )


def test_a_trilinear_form_is_an_einsum_of_three() -> None:
    ((args, _),) = trilinear()
    assert rows_of("aten._trilinear.default", args)[:4] == [
        "S(0), S(0), R, S(0)",
        "P(sum), S(1), S(1), R",
        "S(1), R, S(0), R",
        "P(sum), R, S(2), S(1)",
    ]


def test_an_outer_product_with_a_bias_places_the_bias_as_the_output() -> None:
    rows = rows_of("aten.addr.default", (numbers(3, 4), numbers(3), numbers(4)))
    assert rows[:3] == ["S(0), S(0), S(0), R", "S(1), S(1), R, S(0)", "P(sum), P(sum), P(sum), R"]
