"""The matrix plugin: its table, its rows, their soundness, and torch's own rows beside them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pytest
import torch
from torch.distributed.tensor import Shard, distribute_tensor

import dtensor_registry as dr
import dtensor_registry_matrix
from dtensor_registry.placements import parse_placements, show_placements
from dtensor_registry_kit import simulated_mesh, torch_rows
from dtensor_registry_kit.judging.judge import check_row
from dtensor_registry_matrix.bias import Biased
from dtensor_registry_matrix.rules import STRATEGIES

# The others are in test_attention.py and test_products.py.
SPECIAL = ("_int_mm", "_scaled", "_trilinear", "addr", "ger", "matmul", "outer")
NAMES = [
    name
    for strategy in STRATEGIES
    for name in strategy.names
    if not name.split(".")[1].startswith(SPECIAL)
]
RULES = {name: strategy.rule for strategy in STRATEGIES for name in strategy.names}

Sizes: TypeAlias = list[list[tuple[int, ...]]]
Call: TypeAlias = tuple[list[Any], dict[str, Any]]

# Per op, the shapes of its operands on 2 and 3 ranks: cut evenly, unevenly, and (1 element, or 4
# on 3 ranks: 2, 2, 0) so that a rank holds nothing.
MATRICES: Sizes = [[(4, 6), (6, 6)], [(5, 3), (3, 7)], [(4, 4), (4, 4)], [(1, 1), (1, 1)]]
BATCHES: Sizes = [
    [(2, 4, 6), (2, 6, 6)],
    [(3, 5, 2), (3, 2, 7)],
    [(4, 4, 4), (4, 4, 4)],
    [(1, 1, 1), (1, 1, 1)],
]
VECTORS: Sizes = [[(6,), (6,)], [(5,), (5,)], [(4,), (4,)], [(1,), (1,)]]
MATRIX_VECTOR: Sizes = [[(4, 6), (6,)], [(5, 3), (3,)], [(4, 4), (4,)], [(1, 1), (1,)]]
LINEAR: Sizes = [
    [(4, 6), (6, 6)],
    [(5, 3), (7, 3)],
    [(3, 4, 6), (5, 6)],
    [(2, 3, 2, 5), (7, 5)],
    [(6,), (4, 6)],
    [(3, 4, 5), (5,)],
    [(5,), (5,)],
    [(4, 4), (4, 4)],
    [(4, 4, 4), (4, 4)],
    [(4,), (4, 4)],
    [(4, 4, 4), (4,)],
    [(1, 1, 1), (1, 1)],
]
OPERANDS = {
    "addbmm": BATCHES,
    "addmm": MATRICES,
    "addmv": MATRIX_VECTOR,
    "baddbmm": BATCHES,
    "bmm": BATCHES,
    "dot": VECTORS,
    "linear": LINEAR,
    "mm": MATRICES,
    "mv": MATRIX_VECTOR,
    "vdot": VECTORS,
}
SCALARS: list[dict[str, Any]] = [{"alpha": 3, "beta": 2}, {}, {"alpha": 2, "beta": 0}]


def base_of(name: str) -> str:
    return name.split(".")[1].rstrip("_")


def overload(name: str) -> Any:
    _, packet, overload_name = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload_name)


def numbers(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 10, tuple(shape), generator=generator).to(dtype)


def bias_shapes(output: Sequence[int]) -> list[tuple[int, ...]]:
    """Every shape that broadcasts to that of the output."""
    shapes: list[tuple[int, ...]] = [()]
    for size in reversed(output):
        shapes += [
            (kept, *shape)
            for shape in shapes
            if len(shape) == len(shapes[-1])
            for kept in (size, 1)
        ]
    return shapes


def calls(name: str, dtype: torch.dtype) -> Iterator[Call]:
    """Calls of an op with all sizes, all bias shapes, and several alpha and beta."""
    base = base_of(name)
    for shapes in OPERANDS[base]:
        operands = [numbers(shape, dtype, seed) for seed, shape in enumerate(shapes)]
        for args, kwargs in variants(base, name.split(".")[1].endswith("_"), operands):
            if name.endswith(".out"):
                kwargs["out"] = torch.zeros_like(getattr(torch.ops.aten, base)(*args, **kwargs))
            yield args, kwargs


def variants(base: str, in_place: bool, operands: list[torch.Tensor]) -> Iterator[Call]:
    """The same operands with each bias, alpha and beta that the op can have."""
    dtype = operands[0].dtype
    if base == "linear":
        yield [*operands], {}
        yield [*operands, None], {}
        if operands[1].dim() == 2:
            for bias in (operands[1].shape[:1], (1,), ()):
                yield [*operands, numbers(bias, dtype, 7)], {}
    elif "add" in base:
        output = getattr(torch, base)(torch.zeros((), dtype=dtype), *operands).shape
        for shape in [tuple(output)] if in_place else bias_shapes(output):
            # All alpha and beta with the first sizes, for the sake of time.
            for scalars in SCALARS if operands[0].shape[-1] == 6 else SCALARS[:1]:
                yield [numbers(shape, dtype, 7), *operands], {**scalars}
    else:
        yield [*operands], {}


def rows_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    return [show_placements(row) for row in RULES[name](overload(name), tuple(args), kwargs)]


def test_the_table_is_alphabetical_and_names_each_op_once() -> None:
    first_of_each = [strategy.names[0] for strategy in STRATEGIES]
    assert first_of_each == sorted(first_of_each)
    assert len(NAMES) == len(set(NAMES))
    assert all(
        list(strategy.names)
        == sorted(strategy.names, key=lambda name: (name.endswith("_.default"), name))
        for strategy in STRATEGIES
    )


def test_every_overload_that_runs_on_a_cpu_is_in_the_table() -> None:
    # The overloads that take an output dtype have CUDA kernels only, so that no row of theirs
    # can be checked here.
    packets = sorted({name.split(".")[1] for name in NAMES})
    there = {
        f"aten.{packet}.{name}"
        for packet in packets
        for name in getattr(torch.ops.aten, packet).overloads()
        if not name.startswith("dtype")
    }
    assert set(NAMES) == there


def test_importing_it_and_asking_for_rows_does_not_import_torch() -> None:
    program = """
import sys
from collections import namedtuple
import dtensor_registry_matrix
Meta = namedtuple("Meta", "shape stride dtype")
strategies = dtensor_registry_matrix.provide_single_dim_strategy()
table = {name: strategy.rule for strategy in strategies for name in strategy.names}
a, b = Meta((4, 6), (6, 1), None), Meta((6, 8), (8, 1), None)
assert len(table["aten.mm.default"](None, (a, b), {})) == 7
assert len(table["aten.addmm.default"](None, (b, a, b), {})) == 7
assert len(table["aten.linear.default"](None, (a, a, None), {})) == 7
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_hook_gives_the_table() -> None:
    assert tuple(dtensor_registry_matrix.provide_single_dim_strategy()) == STRATEGIES


def test_a_rule_with_a_bias_prints_and_compares_by_its_equation() -> None:
    assert str(RULES["aten.addmm.default"]) == "biased(mk,kn->mn)"
    assert Biased("mk,kn->mn") == RULES["aten.addmm_.default"]


def test_a_rule_with_a_bad_equation_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="expected '->'"):
        Biased("mk,kn")


# The bias of m x n, and its placement where m, k and n are cut.
BIASES = [
    ((), ["R", "P(sum)", "R"]),
    ((1,), ["R", "P(sum)", "R"]),
    ((6,), ["R", "P(sum)", "S?(0)"]),
    ((1, 6), ["R", "P(sum)", "S?(1)"]),
    ((4, 1), ["S?(0)", "P(sum)", "R"]),
    ((4, 6), ["S?(0)", "P(sum)", "S?(1)"]),
]


@pytest.mark.parametrize(("shape", "placements"), BIASES)
def test_a_bias_is_cut_only_where_it_is_not_broadcast(
    shape: tuple[int, ...], placements: list[str]
) -> None:
    m, k, n = placements
    args = [torch.ones(shape), torch.ones(4, 5), torch.ones(5, 6)]
    assert rows_of("aten.addmm.default", args, {}) == [
        f"S?(0), {m}, S?(0), R",
        f"P(sum), {k}, S?(1), S?(0)",
        f"S?(1), {n}, R, S?(1)",
        "P(sum), P(sum), P(sum), R",
        "P(avg), P(avg), P(avg), R",
        "P(sum), P(sum), R, P(sum)",
        "P(avg), P(avg), R, P(avg)",
    ]


def test_a_bias_of_size_one_is_cut_where_the_output_has_size_one_too() -> None:
    # In place, the output is the bias: the two may not differ, as in torch they do.
    args = [numbers(shape, torch.float64, 1) for shape in ((1, 6), (1, 5), (5, 6))]
    name = "aten.addmm_.default"
    assert rows_of(name, args, {})[0] == "S?(0), S?(0), S?(0), R"
    row = parse_placements("S(0), R, S(0), R")
    assert check_row(overload(name), args, {}, row, 2, allow_empty=True).is_wrong


def test_linear_has_a_row_for_each_batch_dim() -> None:
    args = [torch.ones(2, 3, 5), torch.ones(4, 5), torch.ones(4)]
    assert rows_of("aten.linear.default", args, {})[:4] == [
        "S?(0), S?(0), R, R",
        "S?(1), S?(1), R, R",
        "P(sum), S?(2), S?(1), P(sum)",
        "S?(2), R, S?(0), S?(0)",
    ]


def test_an_out_tensor_comes_last_and_is_placed_as_the_output() -> None:
    a, b, out = torch.ones(4, 5), torch.ones(5, 6), torch.ones(4, 6)
    for name, args in (("mm", [a, b]), ("addmm", [out, a, b]), ("linear", [a, b.T, out[0]])):
        rows = RULES[f"aten.{name}.out"](None, tuple(args), {"out": out})
        assert all(row[0] == row[-1] and len(row) == 2 + len(args) for row in rows)


@pytest.mark.parametrize("name", ["aten.addbmm_.default", "aten.addmm_.default"])
def test_a_bias_that_an_in_place_op_would_resize_has_no_rows(name: str) -> None:
    operands = [numbers(shape, torch.float64, 0) for shape in OPERANDS[base_of(name)][0]]
    product = getattr(torch, base_of(name))(torch.zeros((), dtype=torch.float64), *operands)
    assert rows_of(name, [product, *operands], {})
    assert rows_of(name, [product[0, :1], *operands], {}) == []


@pytest.mark.parametrize("name", [name for name in NAMES if ".add" in name or ".badd" in name])
def test_no_row_depends_on_the_numbers_that_are_left_out_of_the_cache_key(name: str) -> None:
    args, kwargs = next(calls(name, torch.float64))
    rows = rows_of(name, args, kwargs)
    assert all(rows == rows_of(name, args, {**kwargs, **scalars}) for scalars in SCALARS)
    strategy = next(strategy for strategy in STRATEGIES if name in strategy.names)
    assert strategy.schema_info.static_kwargkey == ("out",)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_sound(name: str, ranks: int) -> None:
    count = 0
    for args, kwargs in calls(name, torch.float64):
        for row in RULES[name](overload(name), tuple(args), kwargs):
            verdict = check_row(overload(name), args, kwargs, row, ranks, allow_empty=True)
            assert verdict.outcome == "sound", verdict
            count += 1
    assert count


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex128, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".default")])
def test_every_row_is_sound_in_other_dtypes(name: str, dtype: torch.dtype) -> None:
    args, kwargs = next(calls(name, dtype))
    for row in RULES[name](overload(name), tuple(args), kwargs):
        verdict = check_row(overload(name), args, kwargs, row, 2)
        assert verdict.outcome == "sound", verdict


def test_with_beta_zero_a_partial_bias_of_nans_is_not_read() -> None:
    args = [
        torch.full((6,), torch.nan, dtype=torch.float64),
        *(numbers(shape, torch.float64, 1) for shape in MATRICES[0]),
    ]
    for row in RULES["aten.addmm.default"](None, tuple(args), {"beta": 0}):
        verdict = check_row(torch.ops.aten.addmm.default, args, {"beta": 0}, row, 2)
        assert verdict.outcome == "sound", verdict


@pytest.mark.parametrize("shape", [(), (1,)])
def test_addmv_cuts_nothing_beside_a_broadcast_bias_because_torch_fails_on_empty_pieces(
    shape: tuple[int, ...],
) -> None:
    args = [
        numbers(shape, torch.float64, 0),
        *(numbers((4,) * n, torch.float64, n) for n in (2, 1)),
    ]
    assert not any(
        "S" in row.replace("P(sum)", "") for row in rows_of("aten.addmv.default", args, {})
    )
    # 4 elements on 3 ranks: the last one has none.
    for row in Biased("mk,k->m")(None, tuple(args), {})[:2]:
        assert check_row(torch.ops.aten.addmv.default, args, {}, row, 3, allow_empty=True).is_wrong


UNSOUND = [
    ("addmm", "P, R, S(1), S(0)", "a whole bias, added once per rank"),
    ("addmm", "P, P, R, R", "a whole product, added once per rank"),
    ("addmm", "P, P, P, P", "a sum of products for a product of sums"),
    ("addmm", "P, R, P, R", "a whole bias beside a partial operand"),
    ("addmm", "P(avg), P(avg), S(1), S(0)", "an average of parts of a sum"),
    ("mm", "P, P, P", "a sum of products for a product of sums"),
]


@pytest.mark.parametrize(("base", "row", "fault"), UNSOUND)
def test_the_judge_of_the_tests_above_sees_a_wrong_row(base: str, row: str, fault: str) -> None:
    name = f"aten.{base}.default"
    args, kwargs = next(calls(name, torch.float64))
    verdict = check_row(overload(name), args, kwargs, parse_placements(row), 2)
    assert verdict.outcome == "unsound", fault


# --- torch's own rows ---


def rows_of_torch(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> set[str] | None:
    rows = torch_rows(overload(name), args, kwargs)
    return None if rows is None else {show_placements(row) for row in rows}


def test_linear_reaches_dtensor_whole_only_under_inference_mode() -> None:
    with simulated_mesh(2) as mesh, dr.audit() as seen:
        x, weight = (distribute_tensor(torch.ones(n, 12), mesh, [Shard(0)]) for n in (10, 18))
        with torch.inference_mode():
            torch.nn.functional.linear(x, weight)
        whole = {row.op for row in seen.rows}
        torch.nn.functional.linear(x, weight)
        parts = {row.op for row in seen.rows} - whole
    assert "aten.linear.default" in whole
    assert {"aten.t.default", "aten.mm.default"} <= parts


# What torch has a single-dim rule for; all others it decomposes, or it has no rule.
SINGLE_DIM = ("mm", "bmm", "addmm", "baddbmm", *(("dot",) if torch.__version__ >= "2.14" else ()))


@pytest.mark.parametrize("name", NAMES)
def test_where_torch_has_a_rule_its_rows_are_ours(name: str) -> None:
    seen = False
    for args, kwargs in calls(name, torch.float64):
        ours, theirs = set(rows_of(name, args, kwargs)), rows_of_torch(name, args, kwargs)
        # A dim of size 1 cannot be cut; there our rows for a bias differ from torch's, see above.
        if theirs is None or 1 in args[-1].shape:
            continue
        seen = True
        assert theirs == ours
    assert seen == (base_of(name) in SINGLE_DIM)


@pytest.mark.parametrize("name", ["aten.mm.default", "aten.baddbmm.default"])
def test_of_torchs_rows_only_averages_of_integers_are_left_out(name: str) -> None:
    # Not sound: see tests/rules/test_einsum.py for the counterexample.
    args, kwargs = next(calls(name, torch.int64))
    theirs = rows_of_torch(name, args, kwargs)
    assert theirs is not None
    left_out = theirs - set(rows_of(name, args, kwargs))
    assert left_out == {row for row in theirs if "avg" in row}
    assert left_out
