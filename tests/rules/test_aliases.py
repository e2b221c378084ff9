"""Arguments that are called otherwise in another version of an op: one rule fits both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.errors import InstallError, InvalidContributionError
from dtensor_registry.placements import REPLICATE, ShardingPlaceholder, show_placements
from dtensor_registry.rules import (
    Parameter,
    Signature,
    SingleDimStrategy,
    TensorMeta,
    case,
    frozen,
    like,
    notation,
    reduction,
    row,
    rows,
)
from dtensor_registry.rules.signature import Bindable

X = TensorMeta((8, 4), (4, 1), None)
R, S0, S1 = REPLICATE, ShardingPlaceholder(0), ShardingPlaceholder(1)
ALIASES = SingleDimStrategy(
    "acme.f", row(out="S(0)", x="S(0)"), aliases={"x": ["input", "source"], "dim": "axis"}
).aliases


def signature(x: str, dim: str, mask: str = "mask") -> Signature:
    return Signature(
        "acme.f.default",
        (
            Parameter(x, is_tensor=True),
            Parameter(dim, is_required=False, default=1),
            Parameter(mask, is_tensor=True, is_keyword=True, is_required=False),
        ),
    )


def asked(rule: Bindable, declared: Signature, *args: Any, **kwargs: Any) -> list[str]:
    def rule_of(name: str) -> tuple[Any, Signature]:
        known = declared.with_aliases(ALIASES)
        return row(out="S(1)", x="S(1)").bound(known, lambda _: pytest.fail(name)), known

    bound = rule.bound(declared.with_aliases(ALIASES), rule_of)
    return [show_placements(found) for found in bound(declared.op, args, kwargs)]


@pytest.mark.parametrize(("x", "dim"), [("x", "dim"), ("input", "axis"), ("source", "axis")])
@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (row(out="S(0)", x="S(0)"), ["S?(0), S?(0), R"]),
        (
            rows(row(out="S(0)", x="S(0)"), row(out="P", x="P")),
            ["S?(0), S?(0), R", "P(sum), P(sum), R"],
        ),
        (frozen(case([row(out="S(0)", x="S(0)")], dim=2)), ["S?(0), S?(0), R"]),
        (frozen(case([row(out="S(0)", x="S(0)")], dim=2, x=3)), []),
        (like("acme.f.default", x="x", dim="dim"), ["S?(1), S?(1), R"]),
        (notation("a (k b), _ -> a (k b)", sizes={"k": "dim"}), ["S?(0), S?(0), R"]),
    ],
)
def test_a_template_finds_an_argument_under_each_of_its_names(
    x: str, dim: str, rule: Bindable, found: list[str]
) -> None:
    assert asked(rule, signature(x, dim), X, 2, mask=X) == found


@pytest.mark.parametrize("dim", ["dim", "axis"])
def test_a_reduction_finds_its_dims_and_their_default_under_another_name(dim: str) -> None:
    declared = Signature("acme.f.default", signature("x", dim).parameters[:2])
    assert asked(reduction("dim", None, None), declared, X, 0) == ["S?(0), S?(1)"]
    assert asked(reduction("dim", None, None), declared, X) == ["S?(0), S?(0)"]


def test_a_name_that_the_op_declares_is_no_alias() -> None:
    declared = signature("x", "dim", mask="input")
    rule = row(out="S(0)", x="S(0)", input="S(1)")
    assert asked(rule, declared, X, 0, input=X) == ["S?(0), S?(0), S?(1)"]


def test_an_argument_by_name_is_passed_under_the_name_that_the_op_declares() -> None:
    declared = signature("x", "dim", mask="cover").with_aliases([("mask", ("cover",))])
    rule = row(out="S(0)", mask="S(0)").bound(declared, lambda name: pytest.fail(name))
    assert rule(None, (X, 0), {"cover": X}) == [[S0, R, S0]]


@pytest.mark.parametrize("aliases", ["grad", {"grad": 3}, {"grad": ["a", 3]}, {3: "grad"}, 3])
def test_aliases_that_are_no_names_are_refused(aliases: Any) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        SingleDimStrategy("acme.f", row(out="S(0)", x="S(0)"), aliases=aliases)
    assert str(caught.value) == (
        f"SingleDimStrategy(acme.f): aliases is {aliases!r}; give names of arguments, for example"
        ' {"grad": "grad_output"}'
    )


@torch.library.custom_op("rules_aliases::halve", mutates_args=())
def halve(grad_output: Tensor) -> Tensor:
    return grad_output / 2


@halve.register_fake
def _(grad_output: Tensor) -> Tensor:
    return torch.empty_like(grad_output)


def test_a_rule_with_an_alias_is_in_force(local_mesh: Any) -> None:
    rule = row(out="S(1)", grad="S(1)")
    with pytest.raises(InstallError, match="has no tensor argument 'grad'; it has grad_output"):
        dr.register_single_dim_strategy(halve)(rule)
    x = torch.arange(8.0).reshape(2, 4)
    with dr.register_single_dim_strategy(halve, aliases={"grad": "grad_output"})(rule):
        halved = halve(distribute_tensor(x, local_mesh(2), [Shard(1)]))
    assert halved.placements == (Shard(1),)
    torch.testing.assert_close(halved.full_tensor().reconcile(), x / 2)


def test_a_rule_like_another_reads_that_rule_by_its_own_names(local_mesh: Any) -> None:
    x = torch.arange(8.0).reshape(2, 4)
    source = dr.register_single_dim_strategy(halve, aliases={"grad": "grad_output"})
    with (
        source(row(out="S(1)", grad="S(1)")),
        dr.register_single_dim_strategy(quarter)(like("rules_aliases.halve.default")),
    ):
        quartered = quarter(distribute_tensor(x, local_mesh(2), [Shard(1)]))
    assert quartered.placements == (Shard(1),)
    torch.testing.assert_close(quartered.full_tensor().reconcile(), x / 4)


@torch.library.custom_op("rules_aliases::quarter", mutates_args=())
def quarter(x: Tensor) -> Tensor:
    return x / 4


@quarter.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)
