"""One rule for all forms of an op: in place, `out=`, over lists; only where its author asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry import placements
from dtensor_registry.discovery import Contribution, Discovery, Origin
from dtensor_registry.placements import REPLICATE, ShardingPlaceholder
from dtensor_registry.resolution import Resolution, resolve
from dtensor_registry.rules import (
    Parameter,
    SchemaInfo,
    Signature,
    SingleDimStrategy,
    TensorMeta,
    row,
    rows,
)
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.rules.variant import Variant
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry.settings import Settings
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_patch.variants import base_of, variants_of, widened

aten = torch.ops.aten
R, S0, S1 = Replicate(), Shard(0), Shard(1)

LIBRARY = torch.library.Library("rules_variants", "DEF")
LIBRARY.define("scale(Tensor x, float factor) -> Tensor")
LIBRARY.define("scale_(Tensor(a!) x, float factor) -> Tensor(a!)")
LIBRARY.define("scale.out(Tensor x, float factor, *, Tensor(a!) out) -> Tensor(a!)")
LIBRARY.define("scale.other(Tensor x, Tensor factor) -> Tensor")
LIBRARY.define("halves(Tensor x) -> (Tensor, Tensor)")
LIBRARY.define(
    "halves.out(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(a!), Tensor(b!))"
)
LIBRARY.define("clear(Tensor x) -> Tensor")
LIBRARY.define("clear_(Tensor(a!) x) -> ()")
for name, kernel in {
    "scale": lambda x, factor: x * factor,
    "scale_": lambda x, factor: x.mul_(factor),
    "scale.out": lambda x, factor, *, out: torch.mul(x, factor, out=out),
}.items():
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
ours = torch.ops.rules_variants


@pytest.mark.parametrize(
    ("op", "variants"),
    [
        (
            aten.mul.Tensor,
            [
                "mul.out",
                "mul_.Tensor",
                "_foreach_mul.List",
                "_foreach_mul.Tensor",
                "_foreach_mul_.List",
                "_foreach_mul_.Tensor",
            ],
        ),
        (aten.sum.dim_IntList, ["sum.IntList_out"]),
        (aten.max.dim, ["max.dim_max"]),
        (aten.topk.default, ["topk.values"]),
        (aten.relu.default, ["relu.out", "relu_.default"]),
        (aten.addmm.default, ["addmm.out", "addmm_.default"]),
        # Neither a form that writes nor one of another op has forms of its own.
        (aten.mul_.Tensor, []),
        (aten.mul.out, []),
        (aten.max.default, ["max.unary_out", "_foreach_max.default"]),
        (aten.max.other, ["max.out"]),
        (aten.nonzero.default, ["nonzero.out"]),
        (ours.scale.default, ["scale.out", "scale_.default"]),
        (ours.scale.other, []),
        (ours.halves.default, ["halves.out"]),
        (ours.clear.default, ["clear_.default"]),
    ],
)
def test_forms_of_an_op_are_found_by_their_schemas(op: Any, variants: list[str]) -> None:
    found = variants_of(op)
    assert [str(form).partition(".")[2] for form in found] == variants
    assert all(base_of(form) is op for form in found)


def resolved(*strategies: SingleDimStrategy) -> Resolution:
    claims = [
        Contribution(name, strategy, Origin("acme", "acme", "1.0", SourceLine("acme.py", number)))
        for number, strategy in enumerate(strategies)
        for name in strategy.names
    ]
    return resolve(Discovery((), tuple(claims), ()), Settings(), TorchCatalog())


def no_rows(op: Any, args: Any, kwargs: Any) -> list[Any]:
    return []


def test_no_form_is_claimed_unless_the_author_asks() -> None:
    assert list(resolved(SingleDimStrategy("aten.relu.default", no_rows)).verdicts) == [
        "aten.relu.default"
    ]


def test_every_form_is_claimed_where_the_author_asks() -> None:
    resolution = resolved(SingleDimStrategy("aten.relu.default", no_rows, variants=True))
    assert list(resolution.verdicts) == ["aten.relu.default", "aten.relu.out", "aten.relu_.default"]


def test_a_whole_packet_has_the_forms_of_all_its_overloads() -> None:
    resolution = resolved(SingleDimStrategy("aten.relu", no_rows, variants=True))
    assert list(resolution.verdicts) == ["aten.relu.default", "aten.relu.out", "aten.relu_.default"]


@pytest.mark.parametrize("first", [True, False])
def test_a_form_that_is_named_keeps_its_own_rule(first: bool) -> None:
    general = SingleDimStrategy("aten.relu.default", no_rows, variants=True)
    own = SingleDimStrategy("aten.relu_.default", no_rows)
    resolution = resolved(*([own, general] if first else [general, own]))
    winner = resolution["aten.relu_.default"].winner
    assert winner is not None
    assert winner.strategy is own


META = TensorMeta((8, 4), (4, 1), None)
S, WHOLE = ShardingPlaceholder(0), REPLICATE
SUM, MAX = placements.Partial("sum"), placements.Partial("max")


def base_rule(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    assert (op, set(kwargs) & {"low", "high"}) == ("base", set())
    return [[S, SUM, S, WHOLE], [SUM, MAX, SUM, SUM]]


def test_each_out_tensor_is_placed_as_its_output_where_the_caller_wrote_it() -> None:
    signature = Signature(
        "acme.f.out",
        (
            Parameter("x", is_tensor=True),
            Parameter("y", is_tensor=True),
            Parameter("low", is_tensor=True, is_keyword=True, output=0),
            Parameter("high", is_tensor=True, is_keyword=True, output=1),
        ),
        outputs=2,
    )
    rule = Variant(base_rule, "base", signature)
    found = rule("acme.f.out", (META, META), {"high": META, "low": META})
    assert [show_row(r, 4) for r in found] == [
        "S(0), P(sum) <- S(0), R, P(sum), S(0)",
        "P(sum), P(max) <- P(sum), P(sum), P(max), P(sum)",
    ]


@pytest.mark.parametrize(("outputs", "shown"), [(1, ["S(0) <- S(0), R"]), (0, ["() <- S(0), R"])])
def test_in_place_only_rows_that_leave_the_argument_where_it_is(
    outputs: int, shown: list[str]
) -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        return [[S, S, WHOLE], [S, WHOLE, S], [SUM, WHOLE, SUM]]

    signature = Signature(
        "acme.f_.default",
        (Parameter("x", is_tensor=True), Parameter("y", is_tensor=True)),
        outputs,
    )
    found = Variant(rule, "base", signature, overwritten="x")("acme.f_.default", (META, META), {})
    assert [show_row(r, 2) for r in found] == shown


def test_a_row_that_is_too_short_is_passed_on_for_the_host_to_refuse() -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        return [[S], "S(0)"]

    signature = Signature("acme.f_.default", (Parameter("x", is_tensor=True), Parameter("y", True)))
    assert Variant(rule, "base", signature, "x")("f", (META, META), {}) == [[S], "S(0)"]


def test_what_a_form_writes_to_is_in_a_key_that_was_written_for_its_base() -> None:
    given = SchemaInfo(static_argnum=1)
    assert widened(given, aten.max.dim_max) == SchemaInfo(1, ("max", "max_values"))
    assert widened(given, aten.relu_.default) is given
    assert widened(None, aten.max.dim_max) is None


RULE = rows(row(out="S(0)", x="S(0)"), row(out="S(1)", x="S(1)"), row(out="P", x="P"))


def test_all_forms_run_under_one_rule(local_mesh: Any) -> None:
    mesh = local_mesh(2)

    def spread(placement: Any) -> DTensor:
        return distribute_tensor(torch.arange(24.0).reshape(4, 6), mesh, [placement])

    def values(x: DTensor) -> list[float]:
        return x.full_tensor().reconcile().flatten().tolist()

    with dr.register_single_dim_strategy(ours.scale.default, variants=True)(RULE):
        for placement in (S0, S1, R, Partial("sum")):
            x = spread(placement)
            assert ours.scale(x, 3.0).placements == (placement,)
            assert ours.scale_(x, 3.0) is x
            assert x.placements == (placement,)
            assert values(x) == [3.0 * number for number in range(24)]
            out = distribute_tensor(torch.zeros(4, 6), mesh, [S0])
            assert ours.scale.out(spread(placement), 2.0, out=out) is out
            assert out.placements == (S0,)
            assert values(out) == [2.0 * number for number in range(24)]


def test_lists_run_under_the_rule_element_by_element(local_mesh: Any) -> None:
    mesh = local_mesh(2)
    asked = []

    def rule(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        asked.append(str(op))
        return [[S, S]]

    x = distribute_tensor(torch.ones(4, 6), mesh, [S0])
    with dr.register_single_dim_strategy("aten.mul.Scalar", variants=True)(rule):
        result = torch.ops.aten._foreach_mul.Scalar([x, x], 3.0)
    assert [y.placements for y in result] == [(S0,), (S0,)]
    assert set(asked) == {"aten.mul.Scalar"}


def test_a_form_that_comes_into_being_later_gets_the_rule(local_mesh: Any) -> None:
    mesh = local_mesh(2)
    strategy = dr.register_single_dim_strategy("rules_variants_late.twice.default", variants=True)
    with strategy(rows(row(out="S(0)", x="S(0)"))):
        library = torch.library.Library("rules_variants_late", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.define("twice_(Tensor(a!) x) -> Tensor(a!)")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        library.impl("twice_", lambda x: x.mul_(2), "CompositeExplicitAutograd")
        x = distribute_tensor(torch.ones(4, 6), mesh, [S0])
        torch.ops.rules_variants_late.twice_(x)
        assert torch.ops.rules_variants_late.twice(x).placements == (S0,)
    assert x.full_tensor().reconcile().unique().tolist() == [2.0]
