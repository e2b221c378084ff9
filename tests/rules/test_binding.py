"""Templates that speak of arguments by name, installed: bound to real schemas, and run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.errors import InstallError
from dtensor_registry.rules import Rule, like, notation, reduction, row, rows
from dtensor_registry.torch_runtime.schema import facts

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial("sum")


@torch.library.custom_op("rules_binding::scaled", mutates_args=())
def scaled(x: Tensor, factor: float, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x * factor * weight + (0 if bias is None else bias)


@torch.library.custom_op("rules_binding::total", mutates_args=())
def total(x: Tensor, scale: float, axes: list[int], keep: bool = True) -> Tensor:
    return x.sum(axes, keep) * scale


@torch.library.custom_op("rules_binding::product", mutates_args=())
def product(factor: float, weight: Tensor, x: Tensor) -> Tensor:
    return x @ weight * factor


@scaled.register_fake
def _(x: Tensor, factor: float, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty(x.shape)


@total.register_fake
def _(x: Tensor, scale: float, axes: list[int], keep: bool = True) -> Tensor:
    return x.sum(axes, keep)


@product.register_fake
def _(factor: float, weight: Tensor, x: Tensor) -> Tensor:
    return x @ weight


def run(rule: Rule, op: Any, args: tuple[Any, ...], placements: list[Any], mesh: Any) -> DTensor:
    """Run an op under a rule, its tensors placed, and check it against the same on one rank."""
    given = iter(placements)
    spread = tuple(
        distribute_tensor(a, mesh, [next(given)]) if isinstance(a, Tensor) else a for a in args
    )
    with dr.register_single_dim_strategy(op)(rule):
        result: DTensor = op(*spread)
    torch.testing.assert_close(result.full_tensor().reconcile(), op(*args))
    return result


@pytest.fixture
def mesh(local_mesh: Any) -> Any:
    return local_mesh(2)


def numbers(*shape: int) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def test_a_row_places_the_arguments_that_it_names(mesh: Any) -> None:
    rule = rows(
        row(out="S(0)", x="S(0)", bias="S(0)"),
        row(out="S(1)", x="S(1)", weight="S(0)", bias="S(1)"),
    )
    x, w = numbers(4, 6), numbers(6)
    assert run(rule, scaled, (x, 2.0, w), [S0, R], mesh).placements == (S0,)
    assert run(rule, scaled, (x, 2.0, w, x), [S1, S0, S1], mesh).placements == (S1,)


def test_an_equation_knows_which_argument_a_call_leaves_out(mesh: Any) -> None:
    rule = notation("b n, n, b n -> b n")
    x, w = numbers(4, 6), numbers(6)
    assert run(rule, scaled, (x, 2.0, w), [S0, R], mesh).placements == (S0,)
    assert run(rule, scaled, (x, 2.0, w, x), [S1, S0, S1], mesh).placements == (S1,)


def test_a_reduction_finds_its_arguments_by_name_and_their_defaults(mesh: Any) -> None:
    rule = reduction("axes", "keep", "sum")
    x = numbers(4, 6)
    assert run(rule, total, (x, 2.0, [0]), [S0], mesh).placements == (P,)
    assert run(rule, total, (x, 2.0, [0]), [S1], mesh).placements == (S1,)
    assert run(rule, total, (x, 2.0, [0], False), [S1], mesh).placements == (S0,)


def test_the_rule_of_a_torch_op_serves_one_with_other_arguments(mesh: Any) -> None:
    rule = like("aten.mm.default", self="x", mat2="weight")
    x, w = numbers(4, 6), numbers(6, 8)
    assert run(rule, product, (2.0, w, x), [S0, S1], mesh).placements == (P,)
    assert run(rule, product, (2.0, w, x), [R, S0], mesh).placements == (S0,)


PLUGIN = """\
from dtensor_registry import SingleDimStrategy, hookimpl
from dtensor_registry.rules import like, notation, row

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("rules_binding.scaled.default", {})]
"""


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            'row(out="S(0)", wieght="S(0)")',
            'row(out="S(0)", wieght="S(0)"): rules_binding.scaled.default(Tensor x, factor, Tensor'
            " weight, Tensor bias=None) has no tensor argument 'wieght'; it has x, weight, bias",
        ),
        (
            'notation("b n, n -> b n")',
            "the equation has 2 inputs, but rules_binding.scaled.default(Tensor x, factor, Tensor"
            " weight, Tensor bias=None) takes 3 tensors: x, weight, bias, at position 6:\n"
            "    b n, n -> b n\n"
            "          ^\n"
            '  One for each, "_" for a tensor that stays whole:  "b n, n, _ -> b n"',
        ),
        (
            'like("aten.mm.default", self="x")',
            "like(aten.mm.default, self='x') does not say what 'mat2' of aten.mm.default(Tensor"
            " self, Tensor mat2) is; name an argument of rules_binding.scaled.default(Tensor x,"
            " factor, Tensor weight, Tensor bias=None), or give a value",
        ),
    ],
)
def test_a_template_that_does_not_fit_its_op_is_named_with_its_owner(
    fake_distribution: Any, rule: str, problem: str
) -> None:
    module = fake_distribution("acme-rules", PLUGIN.format(rule))
    with pytest.raises(InstallError) as caught:
        dr.install(allowed=["acme-rules"], required=["acme-rules"])
    assert str(caught.value) == (
        f"the sharding rule for rules_binding.scaled.default does not fit it: {problem}\n"
        f"  rule of acme-rules 1.0 (entry point 'acme', {module}.py:6)\n"
        "  Until it is mended:  DTENSOR_REGISTRY_DISABLED="
        "'[\"acme:rules_binding.scaled.default\"]'"
    )


@pytest.mark.parametrize(
    ("op", "shown", "outputs"),
    [
        ("aten.mm.out", "aten.mm.out(Tensor self, Tensor mat2, *, Tensor out)", 1),
        ("aten.cat.default", "aten.cat.default(Tensor tensors, dim=0)", 1),
        (
            "aten.max.dim_max",
            "aten.max.dim_max(Tensor self, dim, keepdim=False, *, Tensor max, Tensor max_values)",
            2,
        ),
    ],
)
def test_a_signature_says_what_a_schema_declares(op: str, shown: str, outputs: int) -> None:
    packet, overload = op.removeprefix("aten.").split(".")
    known = facts(getattr(getattr(torch.ops.aten, packet), overload)).signature
    assert (str(known), known.outputs) == (shown, outputs)


def test_a_signature_knows_which_output_is_written_to_which_argument() -> None:
    known = facts(torch.ops.aten.max.dim_max).signature
    assert {p.name: p.output for p in known.parameters if p.output is not None} == {
        "max": 0,
        "max_values": 1,
    }
    assert known.operands == ("self",)
