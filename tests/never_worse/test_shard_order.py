"""A dim cut over two mesh dims in another order than the default one is another place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.never_worse.comparison import Comparison, Program

OWN, DEFAULT_ORDER = "S(0), S(0) | 1, 0", "S(0), S(0)"

READING: dict[str, Program] = {
    "add to itself": lambda x, y: x + x,
    "mul": lambda x, y: x * y,
    "gelu": lambda x, y: functional.gelu(x),
    "mm": lambda x, y: x @ y.t(),
    "clone": lambda x, y: x.clone(),
    "neg": lambda x, y: -x,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "sum": lambda x, y: (x.sum(), x.sum(1)),
    "foreach": lambda x, y: torch._foreach_add([x, y], [y, x]),
    "backward": lambda x, y: _gradient(lambda a: (a * y).sum(), x),
    "deepcopy": lambda x, y: copy.deepcopy(x),
}

SHARING: dict[str, Program] = {
    "add_ a number": lambda x, y: x.add_(1),
    "relu_": lambda x, y: x.relu_(),
    "mul_ by itself": lambda x, y: x.mul_(x),
    "add_": lambda x, y: x.add_(y),
    "copy_": lambda x, y: x.copy_(y),
    "add_ to another": lambda x, y: y.add_(x),
    "foreach add_": lambda x, y: (torch._foreach_add_([x], [y]), x)[1:],
    "a write into a view": lambda x, y: (x.detach().mul_(2), x),
    "views": lambda x, y: (x.t(), x[:, :2], x.view(4, 2, 3), *x.chunk(2, 1)),
}


def _gradient(function: Program, tensor: Any) -> Any:
    leaf = tensor.detach().requires_grad_()
    function(leaf).backward()
    return leaf.grad


@pytest.mark.parametrize("other", [DEFAULT_ORDER, OWN, "R, S(1)"])
def test_what_reads_a_tensor_of_another_order_reads_its_own_pieces(
    compare: Callable[..., Comparison], other: str
) -> None:
    x, y = torch.randn(8, 3), torch.randn(8, 3)
    found = compare(2, 2).outcomes(READING, (x, OWN), (y, other))
    assert {name: outcome.error for name, outcome in found.items() if outcome.error} == {}


@pytest.mark.parametrize("other", [DEFAULT_ORDER, OWN, "R, R"])
def test_what_is_written_to_keeps_its_order(compare: Callable[..., Comparison], other: str) -> None:
    x, y = torch.randn(8, 3), torch.randn(8, 3)
    found = compare(2, 2).outcomes(SHARING, (x, OWN), (y, other))
    assert {name: outcome.error for name, outcome in found.items() if outcome.error} == {}
    assert found["add_ a number"].collectives == 0
    assert found["mul_ by itself"].collectives == 0


def test_where_an_order_plays_no_part_nothing_moves(compare: Callable[..., Comparison]) -> None:
    programs: dict[str, Program] = {
        "sum of all": lambda x: x.sum(),
        "sum over the dim": lambda x: x.sum(0),
        "like it": lambda x: torch.zeros_like(x),
    }
    found = compare(2, 2).outcomes(programs, (torch.randn(8, 3), OWN))
    assert {name: outcome.collectives for name, outcome in found.items()} == {
        "sum of all": 0,
        "sum over the dim": 0,
        "like it": 0,
    }


def test_uneven_pieces_of_another_order_are_read_and_not_taken_for_strided_ones(
    compare: Callable[..., Comparison],
) -> None:
    comparison = compare(2, 2)
    x, y = torch.randn(7, 3), torch.randn(7, 3)
    programs = {name: READING[name] for name in ("mul", "gelu", "sum")}
    found = comparison.outcomes(programs, (x, OWN), (y, DEFAULT_ORDER))
    found |= comparison.outcomes({"add_": lambda x: x.add_(1)}, (x, OWN))
    assert {name: outcome.error for name, outcome in found.items() if outcome.error} == {}
    refused = comparison.outcomes({"add_": SHARING["add_"]}, (x, OWN), (y, "R, R"))
    assert refused["add_"].error == (
        "ShardOrderError: aten.add_.Tensor: 'self' is (7, 3) S(0)[1]S(0)[0]: the numbers tell in"
        " which order mesh dims cut it, and it is not the default order."
    )


def test_a_handler_of_torchs_is_not_given_another_order(
    compare: Callable[..., Comparison],
) -> None:
    found = compare(2, 2).outcomes({"argmax": lambda x: x.argmax(0)}, (torch.randn(8, 3), OWN))
    assert found["argmax"].error.startswith("ShardOrderError: aten.argmax.default: tensor 0 is")
