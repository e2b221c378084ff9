"""The `pointwise` template: which rows a call has, from its shapes, numbers and dtypes alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import REPLICATE, Partial, ShardingPlaceholder
from dtensor_registry.rules import Pointwise, TensorMeta, pointwise, tensor_inputs
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry_kit.judging.judge import check_row
from dtensor_registry_kit.simulation.distribute import chunk


def meta(*shape: Any, dtype: Any = torch.float32) -> TensorMeta:
    return TensorMeta(shape, (1,) * len(shape), dtype)


def rows_of(rule: Pointwise, *args: Any, op: str = "aten.f.default", **kwargs: Any) -> list[str]:
    count = len(tensor_inputs(args, kwargs))
    return [show_row(row, count) for row in rule(op, args, kwargs)]


def partial_rows_of(rule: Pointwise, *args: Any, **kwargs: Any) -> list[str]:
    return [row for row in rows_of(rule, *args, **kwargs) if row.startswith("P")]


@pytest.mark.parametrize(
    ("shapes", "rows"),
    [
        ([()], []),
        ([(8,)], ["S(0) <- S(0)"]),
        ([(8, 4)], ["S(0) <- S(0)", "S(1) <- S(1)"]),
        ([(8, 4), (8, 4)], ["S(0) <- S(0), S(0)", "S(1) <- S(1), S(1)"]),
        # A missing dim, a dim of size 1, a 0-dim tensor: repeated, so whole.
        ([(8, 4), (4,)], ["S(0) <- S(0), R", "S(1) <- S(1), S(0)"]),
        ([(8, 4), (1, 4)], ["S(0) <- S(0), R", "S(1) <- S(1), S(1)"]),
        ([(8, 4), (8, 1)], ["S(0) <- S(0), S(0)", "S(1) <- S(1), R"]),
        ([(8, 4), ()], ["S(0) <- S(0), R", "S(1) <- S(1), R"]),
        ([(4,), (8, 4)], ["S(0) <- R, S(0)", "S(1) <- S(0), S(1)"]),
        ([(8, 1), (1, 4)], ["S(0) <- S(0), R", "S(1) <- R, S(1)"]),
        # Nobody is larger: a mesh dim of one rank can cut a dim of size 1.
        ([(1, 4), (1, 4)], ["S(0) <- S(0), S(0)", "S(1) <- S(1), S(1)"]),
        ([(1, 4), (4,)], ["S(0) <- S(0), R", "S(1) <- S(1), S(0)"]),
        # Size 0 is not size 1.
        ([(0, 4), (1, 4)], ["S(0) <- S(0), R", "S(1) <- S(1), S(1)"]),
        (
            [(2, 3, 4), (3, 1), (4,)],
            ["S(0) <- S(0), R, R", "S(1) <- S(1), S(0), R", "S(2) <- S(2), R, S(0)"],
        ),
    ],
)
def test_a_dim_is_cut_on_every_input_that_is_not_repeated_along_it(
    shapes: list[tuple[int, ...]], rows: list[str]
) -> None:
    assert rows_of(pointwise(), *(meta(*shape) for shape in shapes)) == rows


@settings(deadline=None)
@given(
    output=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    seeds=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 15)), min_size=1, max_size=3),
    ranks=st.integers(1, 4),
)
def test_the_pieces_of_a_row_broadcast_to_the_piece_of_the_output(
    output: list[int], seeds: list[tuple[int, int]], ranks: int
) -> None:
    shapes = []
    for skipped, ones in seeds:
        shape = [1 if ones >> dim & 1 else size for dim, size in enumerate(output)]
        shapes.append(tuple(shape[min(skipped, len(shape)) :]))
    inputs = [torch.empty(shape) for shape in shapes]
    whole = sum(inputs, torch.zeros(()))

    rows = pointwise()("aten.f.default", tuple(meta(*shape) for shape in shapes), {})

    assert len(rows) == whole.dim()
    for row in rows:
        for rank in range(ranks):
            want, *pieces = (
                chunk(tensor, entry.dim, rank, ranks)
                if isinstance(entry, ShardingPlaceholder)
                else tensor
                for entry, tensor in zip(row, [whole, *inputs], strict=True)
            )
            assert sum(pieces, torch.zeros(())).shape == want.shape


X, Y, Z = meta(8, 4), meta(4), meta(8, 1)
ADD = pointwise(linear=[(0, 1)])
MUL = pointwise(linear=[(0,), (1,)])
ADDCMUL = pointwise(linear=[(0, 1), (0, 2)])


@pytest.mark.parametrize(
    ("rule", "args", "rows"),
    [
        (pointwise(), (X, Y), []),
        (pointwise(linear=[(0,)]), (X,), ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (pointwise(linear=[(0,)]), (X, Y), ["P(sum) <- P(sum), R", "P(avg) <- P(avg), R"]),
        # One term of a sum must be added once, so both are sums; a mean takes a constant.
        (
            ADD,
            (X, Y),
            [
                "P(sum) <- P(sum), P(sum)",
                "P(avg) <- P(avg), P(avg)",
                "P(avg) <- P(avg), R",
                "P(avg) <- R, P(avg)",
            ],
        ),
        # x * x: never both.
        (
            MUL,
            (X, X),
            [
                "P(sum) <- P(sum), R",
                "P(sum) <- R, P(sum)",
                "P(avg) <- P(avg), R",
                "P(avg) <- R, P(avg)",
            ],
        ),
        (
            ADDCMUL,
            (X, Y, Z),
            [
                "P(sum) <- P(sum), P(sum), R",
                "P(sum) <- P(sum), R, P(sum)",
                "P(avg) <- P(avg), P(avg), R",
                "P(avg) <- P(avg), R, R",
                "P(avg) <- R, P(avg), R",
                "P(avg) <- P(avg), R, P(avg)",
                "P(avg) <- R, R, P(avg)",
            ],
        ),
        # A number in a tensor's place keeps that place, and is the same on every rank.
        (ADD, (X, 1), ["P(avg) <- P(avg)"]),
        (ADD, (X, 1.0), ["P(avg) <- P(avg)"]),
        (ADD, (2, X), ["P(avg) <- P(avg)"]),
        (ADD, (X, None), ["P(avg) <- P(avg)"]),
        (ADD, (X,), ["P(avg) <- P(avg)"]),
        (MUL, (X, 2), ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (MUL, (2, X), ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (pointwise(linear=[(0,)]), (2, X), []),
        # Only zero can be added once per rank: sum([x, y]) starts with 0 + x.
        (ADD, (0, X), ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (ADD, (X, 0.0), ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (ADD, (0, 0), []),
        # Places count from the start of the call, whatever stands before.
        (pointwise(linear=[(1,)]), (3, X), ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        # The tensors of a list stand at one place.
        (
            pointwise(linear=[(0,)]),
            ([X, None, Y],),
            ["P(sum) <- P(sum), P(sum)", "P(avg) <- P(avg), P(avg)"],
        ),
        (pointwise(linear=[(0,)]), ([],), []),
    ],
)
def test_partials_pass_where_every_place_of_a_linear_group_is_accounted_for(
    rule: Pointwise, args: tuple[Any, ...], rows: list[str]
) -> None:
    assert partial_rows_of(rule, *args) == rows


def meta_of(dtype: torch.dtype) -> TensorMeta:
    return meta(8, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [
        (torch.float16, ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (torch.complex64, ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (None, ["P(sum) <- P(sum)", "P(avg) <- P(avg)"]),
        (torch.int64, ["P(sum) <- P(sum)"]),
        (torch.uint8, ["P(sum) <- P(sum)"]),
        (torch.bool, []),
    ],
)
def test_integers_pass_no_average_and_bools_pass_nothing(dtype: Any, rows: list[str]) -> None:
    assert partial_rows_of(pointwise(linear=[(0,)]), meta(8, dtype=dtype)) == rows


def test_a_bool_term_is_no_part_of_a_sum_but_may_be_fixed() -> None:
    assert partial_rows_of(ADD, X, meta_of(torch.bool)) == ["P(avg) <- P(avg), R"]
    assert partial_rows_of(MUL, X, meta_of(torch.bool)) == [
        "P(sum) <- P(sum), R",
        "P(avg) <- P(avg), R",
    ]


def test_an_out_tensor_is_placed_as_the_output_is() -> None:
    assert rows_of(MUL, X, Y, out=meta(8, 4)) == [
        "S(0) <- S(0), R, S(0)",
        "S(1) <- S(1), S(0), S(1)",
        "P(sum) <- P(sum), R, P(sum)",
        "P(sum) <- R, P(sum), P(sum)",
        "P(avg) <- P(avg), R, P(avg)",
        "P(avg) <- R, P(avg), P(avg)",
    ]


def test_every_output_and_every_out_tensor_has_its_place() -> None:
    rule = pointwise(outputs=2, out=["mantissa", "exponent"])

    assert rows_of(rule, meta(8)) == ["S(0), S(0) <- S(0)"]
    assert rows_of(rule, meta(8), mantissa=meta(8), exponent=meta(8)) == [
        "S(0), S(0) <- S(0), S(0), S(0)"
    ]


@pytest.mark.parametrize("shape", [(0,), (1, 4), (0, 4), (8, 4, 1)])
def test_an_out_tensor_that_the_op_must_resize_leaves_no_row(shape: tuple[int, ...]) -> None:
    assert rows_of(ADD, X, X, out=meta(*shape)) == []


def test_other_keyword_tensors_are_operands_in_no_linear_group() -> None:
    rule = pointwise(linear=[(0,)])

    assert rows_of(rule, meta(8), lr=meta()) == [
        "S(0) <- S(0), R",
        "P(sum) <- P(sum), R",
        "P(avg) <- P(avg), R",
    ]
    assert rows_of(pointwise(), meta(8), weight=meta(8)) == ["S(0) <- S(0), S(0)"]
    assert partial_rows_of(ADD, X, other=Y) == ["P(avg) <- P(avg), R"]


def test_an_in_place_op_passes_only_what_its_first_argument_carries() -> None:
    assert partial_rows_of(MUL, X, X, op="aten.mul_.Tensor") == [
        "P(sum) <- P(sum), R",
        "P(avg) <- P(avg), R",
    ]
    assert partial_rows_of(ADD, X, X, op="aten.add_.Tensor") == [
        "P(sum) <- P(sum), P(sum)",
        "P(avg) <- P(avg), P(avg)",
        "P(avg) <- P(avg), R",
    ]


@pytest.mark.parametrize("op", [torch.ops.aten.mul.Tensor, torch.ops.aten.mul_.Tensor])
def test_in_place_ops_are_known_by_the_name_of_torchs_overloads(op: Any) -> None:
    writes_to_first = op._schema.arguments[0].alias_info is not None

    assert ("P(sum) <- R, P(sum)" in partial_rows_of(MUL, X, X, op=op)) != writes_to_first


def test_a_size_known_only_at_run_time_is_taken_for_a_full_dim() -> None:
    size = ShapeEnv().create_unbacked_symint()

    assert rows_of(pointwise(), meta(size, 4), meta(1, 4)) == [
        "S(0) <- S(0), R",
        "S(1) <- S(1), S(1)",
    ]


def test_a_symbolic_size_that_is_one_is_repeated() -> None:
    shape_env = ShapeEnv()
    source = ConstantSource("two")
    symbol = shape_env.create_symbol(2, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    two: Any = shape_env.create_symintnode(symbol, hint=2, source=source)

    assert rows_of(pointwise(), meta(two - 1), meta(8)) == ["S(0) <- R, S(0)"]


def test_rows_are_the_same_at_every_call_and_name_no_dim_from_the_end() -> None:
    rows = ADDCMUL("aten.f.default", (X, Y, Z), {})

    assert rows == ADDCMUL("aten.f.default", (X, Y, Z), {})
    assert all(
        entry.dim >= 0 for row in rows for entry in row if isinstance(entry, ShardingPlaceholder)
    )


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (pointwise(), "pointwise()"),
        (pointwise(linear=[(0,)]), "pointwise(linear=[(0,)])"),
        (pointwise(linear=[(1, 0)]), "pointwise(linear=[(0, 1)])"),
        (pointwise(linear=[(1,), (0,), (1,)]), "pointwise(linear=[(0,), (1,)])"),
        (
            pointwise(linear=[(0,)], outputs=2, out=["a", "b"]),
            "pointwise(linear=[(0,)], outputs=2, out=['a', 'b'])",
        ),
    ],
)
def test_a_rule_prints_canonically_and_its_text_makes_it_again(rule: Pointwise, text: str) -> None:
    assert str(rule) == text
    assert eval(text) == rule
    assert hash(eval(text)) == hash(rule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"linear": (0, 1)},
            "pointwise(linear=(0, 1)): give a list of groups of positions, e.g. [(0, 1)]",
        ),
        (
            {"linear": [()]},
            "pointwise(linear=...): () is no group of argument positions;"
            " a group is one or more positions counted from 0, e.g. (0, 1)",
        ),
        (
            {"linear": [(-1,)]},
            "pointwise(linear=...): (-1,) is no group of argument positions;"
            " a group is one or more positions counted from 0, e.g. (0, 1)",
        ),
        (
            {"linear": ["xy"]},
            "pointwise(linear=...): ('x', 'y') is no group of argument positions;"
            " a group is one or more positions counted from 0, e.g. (0, 1)",
        ),
        ({"outputs": 0}, "pointwise(outputs=0): a pointwise op has at least one output"),
    ],
)
def test_what_makes_no_rule_is_refused_with_a_form_that_does(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidContributionError) as error:
        pointwise(**arguments)

    assert str(error.value) == message


@pytest.mark.parametrize(
    ("direction", "rows"),
    [
        ("up", ["P(max) <- P(max)", "P(min) <- P(min)"]),
        ("down", ["P(min) <- P(max)", "P(max) <- P(min)"]),
        ("up above", ["P(min) <- P(min)"]),
        ("down above", ["P(max) <- P(min)"]),
        ("up below", ["P(max) <- P(max)"]),
    ],
)
def test_maxima_and_minima_pass_as_the_op_rises_or_falls_where_it_is_defined(
    direction: str, rows: list[str]
) -> None:
    assert partial_rows_of(pointwise(monotone={0: direction}), meta(8)) == rows


@pytest.mark.parametrize(
    ("dtype", "wraps", "passes"),
    [
        (torch.float32, True, True),
        (torch.int64, False, True),
        (torch.int64, True, False),
        (torch.bool, False, True),
        (torch.bool, True, False),
        (torch.complex64, False, False),
    ],
)
def test_only_what_has_an_order_that_lasts_has_a_maximum(
    dtype: Any, wraps: bool, passes: bool
) -> None:
    rule = pointwise(monotone={0: "up"}, wraps=wraps)
    assert bool(partial_rows_of(rule, meta(8, dtype=dtype))) == passes


def test_a_complex_number_beside_it_takes_the_order_away() -> None:
    assert partial_rows_of(pointwise(monotone={0: "up"}), meta(8), 1j) == []


def test_an_op_that_falls_passes_nothing_in_place_and_swaps_into_an_out_tensor() -> None:
    rule = pointwise(monotone={0: "down"})
    assert partial_rows_of(rule, meta(8), op="aten.neg_.default") == []
    assert partial_rows_of(rule, meta(8), out=meta(8)) == [
        "P(min) <- P(max), P(min)",
        "P(max) <- P(min), P(max)",
    ]


def test_a_joint_maximum_passes_through_all_of_its_arguments_or_none() -> None:
    rule = pointwise(jointly={"max": (0, 1)})
    assert partial_rows_of(rule, meta(8), meta(8)) == ["P(max) <- P(max), P(max)"]
    assert partial_rows_of(rule, meta(8), 2.0) == []


INT8, INT16, INT64, UINT8 = torch.int8, torch.int16, torch.int64, torch.uint8


@pytest.mark.parametrize(
    ("given", "written", "passes"),
    [
        (INT64, INT64, True),
        (INT64, INT8, False),
        (INT8, INT64, True),
        (INT8, UINT8, False),
        (UINT8, INT8, False),
        (UINT8, INT16, True),
        (torch.bool, INT8, True),
        (INT64, torch.float32, True),
        (torch.float64, torch.float32, True),
    ],
    ids=str,
)
def test_no_maximum_is_written_where_integers_may_wrap_round(
    given: Any, written: Any, passes: bool
) -> None:
    x, y, out = meta(8, dtype=given), meta(8, dtype=given), meta(8, dtype=written)
    rule = pointwise(monotone={0: "up"}, jointly={"max": (0, 1)})
    assert bool(partial_rows_of(rule, x, y, out=out)) == passes
    joint = pointwise(jointly={"max": (0, 1)})
    assert bool(partial_rows_of(joint, out, x, op="aten.clamp_min_.Tensor")) == passes


@pytest.mark.parametrize("row", [["max", "max", "max", "max"], ["max", "max", None, "max"]])
def test_a_maximum_that_wraps_round_in_an_out_tensor_is_wrong(row: list[str | None]) -> None:
    x, y = torch.arange(0, 800, 100), torch.arange(400, -400, -100)
    placed = [REPLICATE if kind is None else Partial(kind) for kind in row]
    op, out = torch.ops.aten.maximum.out, torch.zeros(8, dtype=INT8)
    assert check_row(op, (x, y), {"out": out}, placed, 2).is_wrong


@pytest.mark.parametrize(
    "options",
    [
        {"monotone": {0: "sideways"}},
        {"monotone": {0: ["up"]}},
        {"monotone": {-1: "up"}},
        {"monotone": {0: "up", "out": "up"}},
        {"monotone": [0]},
        {"jointly": {"sum": (0, 1)}},
        {"jointly": {"max": ()}},
        {"jointly": {"max": (0, -1)}},
        {"jointly": {"max": ("x", "y")}},
        {"jointly": {"max": 0}},
        {"jointly": ["max"]},
    ],
)
def test_what_is_no_order_is_refused(options: Any) -> None:
    with pytest.raises(InvalidContributionError, match="pointwise"):
        pointwise(**options)


def test_an_ordered_rule_prints_what_makes_it_again() -> None:
    rule = pointwise(monotone={0: "up"}, jointly={"max": (0, 1)}, wraps=True)
    text = "pointwise(monotone={0: 'up'}, jointly={'max': (0, 1)}, wraps=True)"
    assert str(rule) == text
    assert eval(text) == rule
