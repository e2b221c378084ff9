"""`derive`: rows of a fused op from plain PyTorch that computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.errors import DerivationError
from dtensor_registry.rules import case, frozen, row
from dtensor_registry_kit import derive, draw


@torch.library.custom_op("rules_derive::norm", mutates_args=())
def norm(x: Tensor, weight: Tensor, eps: float, dim: int = -1) -> tuple[Tensor, Tensor]:
    return norm_in_torch(x, weight, eps, dim)


@torch.library.custom_op("rules_derive::joined", mutates_args=())
def joined(xs: list[Tensor], bias: Tensor | None = None) -> Tensor:
    return joined_in_torch(xs, bias)


@torch.library.custom_op("rules_derive::sorted_rows", mutates_args=())
def sorted_rows(x: Tensor) -> Tensor:
    return x.sort(1)[0]


@norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float, dim: int = -1) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.sum(dim, True).shape)


@sorted_rows.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@joined.register_fake
def _(xs: list[Tensor], bias: Tensor | None = None) -> Tensor:
    return torch.cat(xs, 1)


def norm_in_torch(x: Tensor, weight: Tensor, eps: float, dim: int = -1) -> tuple[Tensor, Tensor]:
    rstd = (x.square().mean(dim, keepdim=True) + eps).rsqrt()
    return x * rstd * weight, rstd


def joined_in_torch(xs: list[Tensor], bias: Tensor | None = None) -> Tensor:
    whole = torch.cat(xs, 1)
    return whole if bias is None else whole + bias


X, W = draw((4, 6), torch.float32, 0), draw((6,), torch.float32, 1)


def test_what_no_op_of_the_reference_would_move_is_a_row() -> None:
    found = derive(norm, [((X, W, 1e-5), {})], norm_in_torch)
    assert found.rule == frozen(
        case(
            [row(out="P(sum), R", weight="P(sum)"), row(out="S(0), S(0)", x="S(0)")],
            x=2,
            weight=1,
            eps=1e-5,
            dim=-1,
        )
    )
    assert found.refuted == ()
    assert set(found.passed) >= {"aten.mean.dim", "aten.mul.Tensor", "aten.rsqrt.default"}


def test_calls_that_differ_in_ranks_or_arguments_are_cases_of_their_own() -> None:
    calls = [
        ((X, W, 1e-5), {}),
        ((X, W, 1e-3, 0), {}),
        ((draw((2, 4, 6), torch.float32, 2), W, 1e-5), {}),
    ]
    found = derive(norm, calls, norm_in_torch, ignore=["eps"])
    by_row = row(out="P(sum), R", weight="P(sum)")
    assert found.rule == frozen(
        case([by_row, row(out="S(0), S(0)", x="S(0)")], x=2, weight=1, dim=-1),
        case([by_row, row(out="S(1), S(1)", x="S(1)", weight="S(0)")], x=2, weight=1, dim=0),
        case(
            [by_row, row(out="S(0), S(0)", x="S(0)"), row(out="S(1), S(1)", x="S(1)")],
            x=3,
            weight=1,
            dim=-1,
        ),
    )


@pytest.mark.parametrize("order", [1, -1])
def test_calls_of_one_case_keep_the_rows_that_hold_for_all(order: int) -> None:
    calls = [((X, W, 1e-5), {}), ((X[:1], W, 1e-5), {})]  # one row of numbers cannot be cut
    found = derive(norm, calls[::order], norm_in_torch)
    assert [str(r) for r in found.rule.cases[0].rows] == ['row(out="P(sum), R", weight="P(sum)")']


def test_tensors_of_a_list_are_placed_alike_and_one_left_out_is_a_case() -> None:
    calls = [(([X, X],), {}), (([X, X], draw((12,), torch.float32, 3)), {})]
    found = derive(joined, calls, joined_in_torch)
    assert found.rule == frozen(
        case([row(out="S(0)", xs="S(0)"), row(out="P(sum)", xs="P(sum)")], xs=(2, 2), bias=None),
        case(
            [row(out="S(0)", xs="S(0)"), row(out="P(sum)", xs="P(sum)", bias="P(sum)")],
            xs=(2, 2),
            bias=1,
        ),
    )


def test_a_reference_that_is_not_like_the_op_is_refuted_by_the_op() -> None:
    found = derive(sorted_rows, [((X,), {})], lambda x: 2 * x, partials=[])
    assert found.rule == frozen(case([row(out="S(0)", x="S(0)")], x=2))
    ((refuted, evidence),) = found.refuted
    assert refuted == row(out="S(1)", x="S(1)")
    assert evidence.startswith("on 2 ranks: output 0 on rank 0 at ")


def test_it_prints_the_source_of_the_rule_and_what_was_left_out() -> None:
    found = derive(sorted_rows, [((X,), {})], lambda x: 2 * x, partials=[])
    lines = str(found).splitlines()
    assert lines[0] == "# rules_derive.sorted_rows.default, derived through aten.mul.Tensor"
    assert lines[1].startswith('# left out: row(out="S(1)", x="S(1)"): on 2 ranks: output 0')
    source = {"frozen": frozen, "case": case, "row": row}
    assert eval(str(found), source) == found.rule


def test_the_rules_of_installed_plugins_count(fake_distribution: Any) -> None:
    fake_distribution(
        "acme-rules",
        """\
from dtensor_registry import SingleDimStrategy, hookimpl

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("rules_derive.sorted_rows.default", lambda op, args, kwargs: [])]
""",
    )
    reference = torch.ops.rules_derive.sorted_rows
    with pytest.raises(DerivationError, match="for which there is no rule"):
        derive(sorted_rows, [((X,), {})], reference)
    with dr.install(allowed=["acme-rules"]):
        assert derive(sorted_rows, [((X,), {})], reference).rule == frozen(case([], x=2))


def test_what_was_derived_runs(local_mesh: Any) -> None:
    rule = derive(norm, [((X, W, 1e-5), {})], norm_in_torch, ignore=["eps"]).rule
    mesh = local_mesh(2)
    x, w = torch.arange(24.0).reshape(4, 6), torch.ones(6)
    with dr.register_single_dim_strategy(norm)(rule):
        spread = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(w, mesh)
        y, rstd = norm(*spread, 1e-3)
    assert (y.placements, rstd.placements) == ((Shard(0),), (Shard(0),))
    torch.testing.assert_close(y.full_tensor().reconcile(), norm_in_torch(x, w, 1e-3)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("rules_derive::nothing", [], norm_in_torch),
            "rules_derive.nothing does not exist: import what defines it first",
        ),
        (
            (sorted_rows, [((X,), {})], lambda x: (x, x)),
            "the reference returns 2 tensor(s), but rules_derive.sorted_rows.default 1",
        ),
        (
            (sorted_rows, [((X,), {})], lambda x: x + torch.rand_like(x)),
            "aten.rand_like.default draws random numbers, which every rank would draw for itself;"
            " derive from a reference that takes them as an argument",
        ),
    ],
)
def test_what_cannot_be_derived_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(DerivationError) as caught:
        derive(*arguments)
    assert str(caught.value) == message


def test_an_unknown_argument_to_ignore_is_refused() -> None:
    with pytest.raises(DerivationError) as caught:
        derive(sorted_rows, [((X,), {})], lambda x: x, ignore=["eps"])
    assert str(caught.value) == (
        "ignore names 'eps', which rules_derive.sorted_rows.default(Tensor x) does not have"
    )


def test_too_many_ways_to_place_the_inputs_are_refused_with_their_number() -> None:
    with pytest.raises(DerivationError) as caught:
        derive(norm, [((X, W, 1e-5), {})], norm_in_torch, most=11)
    assert str(caught.value) == (
        "f32[4,6], f32[6], 1e-05 can be placed in 12 ways, more than 11: give a smaller sample,"
        " fewer partials, or most=12"
    )


def test_an_op_without_a_rule_is_named() -> None:
    with pytest.raises(DerivationError) as caught:
        derive(sorted_rows, [((X,), {})], lambda x: torch.ops.rules_derive.sorted_rows(x))
    assert str(caught.value) == (
        "the reference uses rules_derive.sorted_rows.default, for which there is no rule: Operator"
        " rules_derive.sorted_rows.default does not have a sharding strategy registered.\n"
        "  Install a plugin that has one, or write the reference with other ops."
    )


def test_an_op_that_cannot_be_run_proves_nothing() -> None:
    with pytest.raises(DerivationError, match="cannot be run on the samples, so nothing is proven"):
        derive(sorted_rows, [((torch.randn(4),), {})], lambda x: 2 * x)
