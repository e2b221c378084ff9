"""`passthrough`: whatever placement the one tensor has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules import Parameter, Signature, TensorMeta, passthrough
from dtensor_registry.rules.well_formed import show_row

OP = "acme.f.default"


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), dtype)


def kinds(dtype: torch.dtype, rule: Any = None) -> list[str]:
    rows = (rule or passthrough())(OP, (meta(4, dtype=dtype),), {})
    return [row[0].reduce_op for row in rows[1:]]


def test_every_dim_and_then_every_kind_of_partial() -> None:
    rows = passthrough()(OP, (meta(8, 4), 0.5), {"flag": True})
    assert [show_row(row, 1) for row in rows] == [
        "S(0) <- S(0)",
        "S(1) <- S(1)",
        "P(sum) <- P(sum)",
        "P(avg) <- P(avg)",
        "P(product) <- P(product)",
        "P(min) <- P(min)",
        "P(max) <- P(max)",
    ]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, ["sum", "avg", "product", "min", "max"]),
        (torch.complex64, ["sum", "avg", "product"]),
        (torch.int32, ["sum", "product", "min", "max", "band", "bor", "bxor"]),
        (torch.bool, ["sum", "product", "min", "max", "band", "bor"]),
    ],
)
def test_only_partials_that_a_dtype_can_have(dtype: torch.dtype, expected: list[str]) -> None:
    assert kinds(dtype) == expected


def test_only_the_partials_that_the_author_lets_pass() -> None:
    assert kinds(torch.float32, passthrough(partials=["avg", "sum"])) == ["sum", "avg"]
    assert kinds(torch.float32, passthrough(partials=[])) == []


def test_an_out_tensor_is_placed_as_the_output() -> None:
    rows = passthrough(partials=[])(OP, (meta(8),), {"out": meta(8)})
    assert [show_row(row, 2) for row in rows] == ["S(0) <- S(0), S(0)"]


def test_every_output_that_the_op_is_known_to_have() -> None:
    signature = Signature(OP, (Parameter("x", is_tensor=True),), outputs=2)
    rule = passthrough(partials=[]).bound(signature, lambda name: pytest.fail(name))
    assert [show_row(row, 1) for row in rule(OP, (meta(8),), {})] == ["S(0), S(0) <- S(0)"]


def test_a_call_with_two_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="passthrough") as caught:
        passthrough()(OP, (meta(8), meta(8)), {})
    assert str(caught.value) == (
        "passthrough() is for one tensor, but acme.f.default was called with 2: input 1, input 2"
    )


def test_an_op_with_two_tensor_arguments_is_refused() -> None:
    signature = Signature(OP, (Parameter("x", is_tensor=True), Parameter("y", is_tensor=True)))
    with pytest.raises(InvalidContributionError) as caught:
        passthrough().bound(signature, lambda name: pytest.fail(name))
    assert str(caught.value) == (
        "passthrough() is for one tensor, but acme.f.default(Tensor x, Tensor y) takes 2"
    )


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        passthrough(partials=["mean", "sum"])
    assert str(caught.value) == (
        "passthrough(partials=...): 'mean' is none of sum, avg, product, min, max, band, bor, bxor"
    )


def test_it_prints_what_builds_it_and_compares_by_value() -> None:
    assert str(passthrough()) == "passthrough()"
    rule = passthrough(partials=["avg", "sum"])
    assert str(rule) == "passthrough(partials=['sum', 'avg'])"
    assert eval(str(rule), {"passthrough": passthrough}) == rule
    assert len({passthrough(), rule, passthrough(partials=["sum", "avg"])}) == 2
