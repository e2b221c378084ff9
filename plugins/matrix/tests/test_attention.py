"""Attention: what is cut, what is not, and that heads cut alike need no communication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import dtensor_registry
from dtensor_registry.placements import parse_placements, show_placements
from dtensor_registry_kit import check_row, simulated_mesh
from dtensor_registry_matrix.lent_kernel import fused_attention, fused_attention_backward
from dtensor_registry_matrix.rules import STRATEGIES
from dtensor_registry_matrix.samples import attention, attention_backward

RULES = {name: strategy.rule for strategy in STRATEGIES for name in strategy.names}
CPU = "aten._scaled_dot_product_flash_attention_for_cpu"
FUSED = "aten._scaled_dot_product_fused_attention_overrideable"
CALLS = {
    f"{CPU}.default": attention,
    f"{CPU}_backward.default": attention_backward,
    f"{FUSED}.default": fused_attention,
    f"{FUSED}_backward.default": fused_attention_backward,
}


def overload(name: str) -> Any:
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def rows_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    rows = RULES[name](overload(name), args, kwargs)
    return [show_placements(row).replace("?", "") for row in rows]


@pytest.mark.parametrize("name", CALLS)
def test_every_row_is_sound(name: str) -> None:
    for args, kwargs in CALLS[name]():
        for row in RULES[name](overload(name), args, kwargs):
            verdict = check_row(overload(name), args, kwargs, row, 2)
            assert not verdict.is_wrong, verdict
            # The fused forward op returns things that hold nothing on this kernel.
            assert verdict.outcome == "sound" or name == f"{FUSED}.default"


def test_batch_heads_and_queries_are_cut_and_a_mask_where_it_is_not_repeated() -> None:
    args, kwargs = list(attention())[3]  # mask (1, 1, L, S)
    assert rows_of(f"{CPU}.default", args, kwargs)[:3] == [
        "S(0), S(0), S(0), S(0), S(0), R",
        "S(1), S(1), S(1), S(1), S(1), R",
        "S(2), S(2), S(2), R, R, S(2)",
    ]


def test_the_gradient_of_keys_is_cut_with_them_and_that_of_queries_a_sum() -> None:
    args, kwargs = next(attention_backward())
    assert rows_of(f"{CPU}_backward.default", args, kwargs)[2:4] == [
        "S(2), P(sum), P(sum), S(2), S(2), R, R, S(2), S(2)",
        "P(sum), S(2), S(2), R, R, S(2), S(2), R, R",
    ]


WRONG = [
    (1, "S(2), S(2), S(2), R, R", "a causal mask counts from the first query"),
    (0, "P(sum), R, R, S(2), S(2)", "a softmax over some of the keys is no part of that over all"),
    (0, "P(sum), P(sum), R, P(sum), R", "a softmax is not linear in the keys"),
]


@pytest.mark.parametrize(("at", "row", "why"), WRONG)
def test_a_row_that_is_not_there_is_wrong(at: int, row: str, why: str) -> None:
    args, kwargs = list(attention())[at]
    assert row not in rows_of(f"{CPU}.default", args, kwargs)
    op = overload(f"{CPU}.default")
    assert check_row(op, args, kwargs, parse_placements(row), 2).is_wrong, why


@pytest.fixture
def ranks() -> Iterator[Any]:
    with simulated_mesh(2) as mesh:
        yield mesh


def test_heads_cut_alike_need_no_communication_forward_or_backward(ranks: Any) -> None:
    with dtensor_registry.install():
        query, key, value = (
            DTensor.from_local(torch.randn(2, 2, 7, 16), ranks, [Shard(1)]).requires_grad_()
            for _ in range(3)
        )
        with CommDebugMode() as moved:
            output = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            gradients = torch.autograd.grad(output, (query, key, value), torch.ones_like(output))
    assert output.placements == (Shard(1),)
    assert all(gradient.placements == (Shard(1),) for gradient in gradients)
    assert moved.get_total_counts() == 0


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(2)])
def test_attention_without_dropout_draws_nothing_so_it_may_be_whole(
    ranks: Any, placement: Placement
) -> None:
    whole = [torch.randn(2, 2, 7, 16) for _ in range(3)]
    with dtensor_registry.install():
        inputs = [
            distribute_tensor(tensor, ranks, [placement]).requires_grad_() for tensor in whole
        ]
        output = F.scaled_dot_product_attention(*inputs)
        output.sum().backward()
    leaves = [tensor.requires_grad_() for tensor in whole]
    expected = F.scaled_dot_product_attention(*leaves)
    expected.sum().backward()
    torch.testing.assert_close(output.full_tensor().reconcile(), expected)
    for cut, leaf in zip(inputs, leaves, strict=True):
        assert cut.grad is not None
        torch.testing.assert_close(cut.grad.full_tensor().reconcile(), leaf.grad)


def test_attention_with_dropout_is_refused_where_ranks_would_draw_their_own(ranks: Any) -> None:
    op = overload(f"{CPU}.default")
    whole, cut = (
        distribute_tensor(torch.randn(2, 2, 8, 16), ranks, [placement])
        for placement in (Replicate(), Shard(0))
    )
    with dtensor_registry.install():
        with pytest.raises(RuntimeError, match="draws random numbers; its output 0 would be"):
            op(whole, whole, whole, 0.5)
        assert op(whole, whole, whole, 0.0)[0].placements == (Replicate(),)
        assert op(cut, cut, cut, 0.0)[0].placements == (Shard(0),)
