"""`reduction`: dims that are kept move, dims that are reduced leave a partial, if one there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import Partial, Shard
from dtensor_registry.rules import Parameter, Reduction, Signature, TensorMeta, reduction
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry_kit import check_row, draw

OP = "acme.reduce.default"
SUM = reduction(1, 2, "sum")


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), dtype)


def rows_of(rule: Any, *args: Any, **kwargs: Any) -> list[str]:
    count = sum(isinstance(a, TensorMeta) for a in (*args, *kwargs.values()))
    return [show_row(row, count) for row in rule(OP, args, kwargs)]


def cuts(rule: Any, *args: Any, **kwargs: Any) -> list[str]:
    return [row for row in rows_of(rule, *args, **kwargs) if "<- S" in row]


X = meta(8, 4, 2)


@pytest.mark.parametrize(
    ("args", "rows"),
    [
        ((X, [1]), ["S(0) <- S(0)", "P(sum) <- S(1)", "S(1) <- S(2)"]),
        ((X, [1], False), ["S(0) <- S(0)", "P(sum) <- S(1)", "S(1) <- S(2)"]),
        ((X, [1], True), ["S(0) <- S(0)", "P(sum) <- S(1)", "S(2) <- S(2)"]),
        ((X, 0), ["P(sum) <- S(0)", "S(0) <- S(1)", "S(1) <- S(2)"]),
        ((X, -1), ["S(0) <- S(0)", "S(1) <- S(1)", "P(sum) <- S(2)"]),
        ((X, (0, -1)), ["P(sum) <- S(0)", "S(0) <- S(1)", "P(sum) <- S(2)"]),
        ((X, [0, 0]), ["P(sum) <- S(0)", "S(0) <- S(1)", "S(1) <- S(2)"]),
        ((X, None), ["P(sum) <- S(0)", "P(sum) <- S(1)", "P(sum) <- S(2)"]),
        ((X, []), ["P(sum) <- S(0)", "P(sum) <- S(1)", "P(sum) <- S(2)"]),
        ((X,), ["P(sum) <- S(0)", "P(sum) <- S(1)", "P(sum) <- S(2)"]),
        ((meta(), [0]), []),
    ],
)
def test_a_kept_dim_moves_up_and_a_reduced_one_leaves_a_partial(
    args: tuple[Any, ...], rows: list[str]
) -> None:
    assert cuts(SUM, *args) == rows


@pytest.mark.parametrize(
    ("kind", "cut", "through"),
    [
        ("sum", "sum", ["sum", "avg"]),
        ("mean", None, ["sum", "avg"]),
        ("max", "max", ["max"]),
        ("min", "min", ["min"]),
        ("product", "product", ["product"]),
        ("any", "sum", []),
        ("all", "product", []),
        (None, None, []),
    ],
)
def test_what_each_kind_leaves_of_a_cut_and_lets_through(
    kind: str | None, cut: str | None, through: list[str]
) -> None:
    rows = rows_of(reduction(1, 2, kind), meta(8, 4), 0)
    left = [f"P({cut}) <- S(0)"] if cut else []
    assert rows == [*left, "S(0) <- S(1)", *(f"P({op}) <- P({op})" for op in through)]


@pytest.mark.parametrize(
    ("kind", "dtype", "asked", "through"),
    [
        # An integer average is rounded; a sum of truth values is no sum.
        ("sum", torch.int64, None, ["sum"]),
        ("sum", torch.bool, None, []),
        ("max", torch.bool, None, []),
        ("any", torch.bool, None, ["sum"]),
        ("all", torch.bool, None, ["product"]),
        ("sum", torch.complex64, None, ["sum", "avg"]),
        # Elements that are made integers first are no longer additive.
        ("sum", torch.float32, torch.int64, []),
        ("sum", torch.float32, torch.float64, ["sum", "avg"]),
        ("sum", torch.int32, torch.int64, ["sum"]),
    ],
)
def test_partials_pass_only_where_the_dtypes_let_them(
    kind: str, dtype: torch.dtype, asked: torch.dtype | None, through: list[str]
) -> None:
    rows = reduction(1, 2, kind)(OP, (meta(4, dtype=dtype), 0), {"dtype": asked})
    assert [row[0].reduce_op for row in rows[1:]] == through


def test_no_partial_passes_where_the_author_says_so() -> None:
    rule = reduction(1, 2, "sum", partials=False)
    assert rows_of(rule, meta(8, 4), 0) == ["P(sum) <- S(0)", "S(0) <- S(1)"]


def test_a_mean_leaves_nothing_of_a_cut_because_pieces_differ_in_size() -> None:
    # Why there is no P(avg): 5 elements on 2 ranks are 3 and 2, but their means would weigh alike.
    values = draw((5, 4), torch.float64, 0)
    row = [Partial("avg"), Shard(0)]
    assert check_row(torch.ops.aten.mean.dim, (values, [0]), {}, row, 2).outcome == "unsound"


def test_all_outputs_are_reduced_alike_and_an_out_tensor_follows() -> None:
    rule = reduction(1, 2, None, outputs=2)
    assert rows_of(rule, meta(8, 4), 0) == ["S(0), S(0) <- S(1)"]
    out = meta(4)
    rows = reduction(1, 2, "sum", partials=False)(OP, (meta(8, 4), 0), {"out": out})
    assert [show_row(row, 2) for row in rows] == ["P(sum) <- S(0), P(sum)", "S(0) <- S(1), S(0)"]


SIGNATURE = Signature(
    OP,
    (
        Parameter("x", is_tensor=True),
        Parameter("scale", is_required=False, default=1.0),
        Parameter("axes", is_required=False, default=[0]),
        Parameter("keep", is_keyword=True, is_required=False, default=True),
    ),
)
BOUND = reduction("axes", "keep", "max").bound(SIGNATURE, lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("args", "kwargs", "rows"),
    [
        ((meta(8, 4),), {}, ["P(max) <- S(0)", "S(1) <- S(1)"]),
        ((meta(8, 4), 2.0), {}, ["P(max) <- S(0)", "S(1) <- S(1)"]),
        ((meta(8, 4), 2.0, [1]), {}, ["S(0) <- S(0)", "P(max) <- S(1)"]),
        ((meta(8, 4),), {"axes": [1], "keep": False}, ["S(0) <- S(0)", "P(max) <- S(1)"]),
        ((meta(8, 4),), {"keep": False}, ["P(max) <- S(0)", "S(0) <- S(1)"]),
    ],
)
def test_arguments_by_name_are_found_wherever_the_call_has_them_and_else_by_default(
    args: tuple[Any, ...], kwargs: dict[str, Any], rows: list[str]
) -> None:
    assert cuts(BOUND, *args, **kwargs) == rows


def test_arguments_by_name_need_an_op_unless_the_call_names_them() -> None:
    rule = reduction("axes", None, "max")
    assert cuts(rule, meta(8, 4), axes=[1]) == ["S(0) <- S(0)", "P(max) <- S(1)"]
    with pytest.raises(InvalidContributionError) as caught:
        rows_of(rule, meta(8, 4), [1])
    assert str(caught.value) == (
        "reduction('axes', None, 'max') was asked for rows before it was bound to an op, so it does"
        " not know where argument 'axes' stands; use it as the rule of a strategy that is installed"
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            reduction("dim", None, "max"),
            "reduction('dim', None, 'max'): acme.reduce.default(Tensor x, scale=1.0, axes=[0], *,"
            " keep=True) has no argument 'dim'",
        ),
        (
            reduction("axes", None, "max", outputs=2),
            "reduction('axes', None, 'max', outputs=2) is for one tensor and 2 output(s), but"
            " acme.reduce.default(Tensor x, scale=1.0, axes=[0], *, keep=True) takes 1 and"
            " returns 1",
        ),
    ],
)
def test_an_op_that_does_not_fit_is_refused_with_its_signature(
    rule: Reduction, message: str
) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        rule.bound(SIGNATURE, lambda name: pytest.fail(name))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            (meta(8, 4), [2]),
            "reduction(1, 2, 'sum'): acme.reduce.default reduces dim 2 of a tensor with 2 dims",
        ),
        (
            (meta(8), meta(8)),
            "reduction(1, 2, 'sum') is for one tensor, but acme.reduce.default was called with 2",
        ),
    ],
)
def test_a_call_that_does_not_fit_is_refused(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match="reduction") as caught:
        rows_of(SUM, *args)
    assert str(caught.value) == message


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        reduction(1, 2, "avg")
    assert str(caught.value) == (
        "reduction(1, 2, 'avg'): a reduction is one of 'all', 'any', 'max', 'mean', 'min',"
        " 'product', 'sum', None"
    )


def test_it_prints_what_builds_it_and_compares_by_value() -> None:
    rules = [SUM, reduction("dim", None, None, outputs=2), reduction(1, 2, "max", partials=False)]
    assert [str(rule) for rule in rules] == [
        "reduction(1, 2, 'sum')",
        "reduction('dim', None, None, outputs=2)",
        "reduction(1, 2, 'max', partials=False)",
    ]
    assert [eval(str(rule), {"reduction": reduction}) for rule in rules] == rules
    assert reduction("axes", "keep", "max") == BOUND
