"""Partial tensors that programs meet: what stays partial is what torch's own rules say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.never_worse.comparison import ORDERS, Comparison, Program

LIKE: dict[str, Program] = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 8.0),
    "empty_like, filled": lambda x: torch.empty_like(x).fill_(8.0),
    "empty_like, zeroed": lambda x: torch.empty_like(x).zero_(),
    "fill_ with a number": lambda x: x.fill_(8.0),
    "fill_ with zero": lambda x: x.fill_(0),
    "zero_": lambda x: x.zero_(),
    "init": lambda x: nn.init.constant_(x, 8.0),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "clone": torch.clone,
    "deep clone": lambda x: x.detach().clone(),
}

IN_PLACE_AFTER: dict[str, Program] = {
    "where": lambda x: torch.where(x > 0, x, x).relu_(),
    "lerp": lambda x: x.lerp(x, 0.5).relu_(),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0).relu_(),
    "clone, clamp_": lambda x: x.clone().clamp_(0, 1),
    "clone, add_": lambda x: x.clone().add_(1),
    "clone, masked_fill_": lambda x: x.clone().masked_fill_(x > 0, 0.0),
    "addcmul": lambda x: torch.addcmul(x, x, x).relu_(),
    "maximum": lambda x: torch.maximum(x, x).relu_(),
    "neg": lambda x: (-x).relu_(),
    "add, mul_": lambda x: (x + x).mul_(2),
    "sub_": lambda x: (x * 2).sub_(x),
    "margin_ranking_loss": lambda x: functional.margin_ranking_loss(x, x, torch.ones_like(x)),
}

MASKED: dict[str, Program] = {
    "embedding": lambda w, i: _gradient(lambda v: functional.embedding(i, v).sum(), w),
    "embedding, viewed": lambda w, i: functional.embedding(i, w).view(-1, 8).sum(),
    "embedding, zeros_like": lambda w, i: torch.zeros_like(functional.embedding(i, w)),
    "embedding, ones_like": lambda w, i: torch.ones_like(functional.embedding(i, w)),
    "embedding, full_like": lambda w, i: torch.full_like(functional.embedding(i, w), 3.0),
    "embedding, clone": lambda w, i: functional.embedding(i, w).clone(),
    "embedding, scaled": lambda w, i: functional.embedding(i, w) * 2,
}


def _gradient(function: Program, tensor: Any) -> Any:
    leaf = tensor.detach().requires_grad_()
    function(leaf).backward()
    return leaf.grad


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("partial", ["P(sum)", "P(avg)", "P(max)"])
def test_what_is_made_like_a_partial_is_placed_as_on_bare_torch(
    compare: Callable[..., Comparison], partial: str, order: str
) -> None:
    programs = dict(LIKE)
    if partial == "P(sum)":
        # Bare torch fills each part with the number, so that the sum is another one.
        for name in ("empty_like, filled", "fill_ with a number", "init"):
            del programs[name]
    compare(2).assert_none_worse(programs, (torch.randn(4, 4), partial), order=ORDERS[order])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("partial", ["P(sum)", "P(avg)"])
def test_an_op_in_place_after_one_on_a_partial_runs_where_bare_torch_runs_it(
    compare: Callable[..., Comparison], partial: str, order: str
) -> None:
    x = torch.rand(4, 4) - 0.3
    compare(2).assert_none_worse(IN_PLACE_AFTER, (x, partial), order=ORDERS[order])


@pytest.mark.parametrize("order", ORDERS)
def test_a_vocabulary_that_is_cut_works_as_on_bare_torch(
    compare: Callable[..., Comparison], order: str
) -> None:
    weight, index = torch.randn(16, 8), torch.randint(16, (4, 3))
    compare(4).assert_none_worse(MASKED, (weight, "S(0)"), (index, "R"), order=ORDERS[order])


@pytest.mark.parametrize("order", ORDERS)
def test_a_gather_along_a_cut_dim_works_as_on_bare_torch(
    compare: Callable[..., Comparison], order: str
) -> None:
    programs: dict[str, Program] = {
        "sum": lambda x, i: torch.gather(x, 1, i).sum(),
        "backward": lambda x, i: _gradient(lambda v: torch.gather(v, 1, i).sum(), x),
        "zeros_like": lambda x, i: torch.zeros_like(torch.gather(x, 1, i)),
    }
    x, index = torch.randn(4, 8), torch.randint(8, (4, 3))
    compare(4).assert_none_worse(programs, (x, "S(1)"), (index, "R"), order=ORDERS[order])


@pytest.mark.parametrize("order", ORDERS)
def test_a_loss_that_checks_its_range_sees_whole_values(
    compare: Callable[..., Comparison], order: str
) -> None:
    programs: dict[str, Program] = {
        "binary_cross_entropy": lambda p, t: functional.binary_cross_entropy(p, t)
    }
    p, t = torch.rand(4, 4), torch.rand(4, 4)
    compare(2).assert_none_worse(programs, (p, "R"), (t, "P(avg)"), order=ORDERS[order])
