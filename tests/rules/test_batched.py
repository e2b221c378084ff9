"""`batched`: one row, the batch dim cut wherever there is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules import Batched, Parameter, Signature, TensorMeta, batched
from dtensor_registry.rules.well_formed import show_row

OP = "acme.f.default"


def meta(*shape: int) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), torch.float32)


def rows_of(rule: Batched, *args: Any, **kwargs: Any) -> list[str]:
    count = sum(isinstance(a, TensorMeta) for a in (*args, *kwargs.values()))
    return [show_row(row, count) for row in rule(OP, args, kwargs)]


@pytest.mark.parametrize(
    ("ins", "outs", "shapes", "rows"),
    [
        ([0], [0], [(8, 4)], ["S(0) <- S(0)"]),
        ([0, 0, None], [0], [(8, 4), (8, 3), (4,)], ["S(0) <- S(0), S(0), R"]),
        ([1, -1], [0, None], [(8, 4), (3, 2, 4)], ["S(0), R <- S(1), S(2)"]),
        # One that is broadcast along the batch stays whole, unless all are.
        ([0, 0], [0], [(8, 4), (1, 4)], ["S(0) <- S(0), R"]),
        ([0, 0], [0], [(1, 4), (1, 4)], ["S(0) <- S(0), S(0)"]),
    ],
)
def test_the_batch_dim_is_cut_wherever_there_is_one(
    ins: list[int | None], outs: list[int | None], shapes: list[tuple[int, ...]], rows: list[str]
) -> None:
    assert rows_of(batched(ins=ins, outs=outs), *(meta(*shape) for shape in shapes)) == rows


def test_an_out_tensor_is_placed_as_its_output() -> None:
    assert rows_of(batched(ins=[0], outs=[1]), meta(8, 4), out=meta(4, 8)) == ["S(1) <- S(0), S(1)"]


SIGNATURE = Signature(
    OP,
    (
        Parameter("x", is_tensor=True, is_required=False),
        Parameter("scale"),
        Parameter("bias", is_tensor=True, is_required=False),
        Parameter("xs", is_tensor=True, is_required=False),
    ),
)
BOUND = batched(ins=[0, None, 1], outs=[0]).bound(SIGNATURE, lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("args", "rows"),
    [
        ((meta(8, 4), 2), ["S(0) <- S(0)"]),
        ((meta(8, 4), 2, meta(4)), ["S(0) <- S(0), R"]),
        ((meta(8, 4), 2, None, [meta(3, 8), meta(3, 8)]), ["S(0) <- S(0), S(1), S(1)"]),
        ((None, 2, meta(4)), []),
    ],
)
def test_once_bound_an_argument_may_be_left_out_or_be_a_list(
    args: tuple[Any, ...], rows: list[str]
) -> None:
    count = sum(len(a) if isinstance(a, list) else isinstance(a, TensorMeta) for a in args)
    assert [show_row(row, count) for row in BOUND(OP, args, {})] == rows


@pytest.mark.parametrize(
    ("ins", "outs", "message"),
    [
        ([0, "x"], [0], "batched(ins=[0, 'x'], outs=[0]): 'x' is neither a dim nor None"),
        ([True], [0], "batched(ins=[True], outs=[0]): True is neither a dim nor None"),
        (
            [0],
            [-1],
            "batched(ins=[0], outs=[-1]): a rule does not know how many dims an output has; count"
            " from 0",
        ),
        ([None], [0], "batched(ins=[None], outs=[0]): no input, or no output, has a batch dim"),
        ([0], [None], "batched(ins=[0], outs=[None]): no input, or no output, has a batch dim"),
        ([], [0], "batched(ins=[], outs=[0]): no input, or no output, has a batch dim"),
    ],
)
def test_what_makes_no_batch_is_refused(ins: Any, outs: Any, message: str) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        batched(ins=ins, outs=outs)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [(8, 4)],
            "batched(ins=[0, 1], outs=[0]) is for 2 tensors, but acme.f.default was called with 1",
        ),
        (
            [(8, 4), (8,)],
            "batched(ins=[0, 1], outs=[0]): acme.f.default was called with input 2 of shape (8,),"
            " which has no dim 1",
        ),
        (
            [(8, 4), (4, 7)],
            "batched(ins=[0, 1], outs=[0]): acme.f.default was called with batches of 8 in input 1"
            " and of 7 in input 2",
        ),
    ],
)
def test_a_call_that_does_not_fit_is_refused(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match="batched") as caught:
        rows_of(batched(ins=[0, 1], outs=[0]), *(meta(*shape) for shape in shapes))
    assert str(caught.value) == message


def test_an_op_that_does_not_fit_is_refused_with_its_signature() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        batched(ins=[0, 0], outs=[0]).bound(SIGNATURE, lambda name: pytest.fail(name))
    assert str(caught.value) == (
        "batched(ins=[0, 0], outs=[0]) is for 2 tensors and 1 outputs, but"
        " acme.f.default(Tensor x=None, scale, Tensor bias=None, Tensor xs=None) takes 3"
        " (x, bias, xs) and returns 1"
    )


def test_it_prints_what_builds_it_and_compares_by_value() -> None:
    rule = batched(ins=[0, None, 1], outs=[0])
    assert str(rule) == "batched(ins=[0, None, 1], outs=[0])"
    assert eval(str(rule), {"batched": batched}) == rule == BOUND
    assert len({rule, BOUND, batched(ins=[0], outs=[0])}) == 2
