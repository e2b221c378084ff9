"""The einsum template: its notation, its rows, their soundness, and torch's own candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._dtensor_spec import TensorMeta as TorchMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops._einsum_strategy import gen_einsum_strategies
from torch.distributed.tensor._ops.single_dim_strategy import _expand_single_dim_strategy_to_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from dtensor_registry.errors import NotationError, RegistryError
from dtensor_registry.placements import REPLICATE, Partial, Shard, parse_placements, show_placements
from dtensor_registry.planner import Problem, TensorInput, Topology, candidates, fill_rows
from dtensor_registry.rules.einsum import Einsum, einsum
from dtensor_registry.rules.metadata import TensorMeta
from dtensor_registry_kit.judging.judge import check_row

OP = "acme.product.default"


def meta(*shape: int, dtype: Any = None) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), dtype)


def rows_of(rule: Einsum, *tensors: TensorMeta, **kwargs: Any) -> list[str]:
    return [show_placements(row) for row in rule(OP, tensors, kwargs)]


# Equation, shapes, rows without the linearity rows.
CUTS = [
    ("mk,kn->mn", [(4, 6), (6, 8)], ["S?(0), S?(0), R", "P(sum), S?(1), S?(0)", "S?(1), R, S?(1)"]),
    (
        "bmk,bkn->bmn",
        [(2, 4, 6), (2, 6, 8)],
        [
            "S?(0), S?(0), S?(0)",
            "S?(1), S?(1), R",
            "P(sum), S?(2), S?(1)",
            "S?(2), R, S?(2)",
        ],
    ),
    ("k,k->", [(6,), (6,)], ["P(sum), S?(0), S?(0)"]),
    ("ij->ji", [(2, 3)], ["S?(1), S?(0)", "S?(0), S?(1)"]),
    # A dim that only one operand has, and that the output lacks: its sum stays one operand's.
    ("mk,n->mn", [(4, 6), (8,)], ["S?(0), S?(0), R", "P(sum), S?(1), R", "S?(1), R, S?(0)"]),
    (
        "i,ij,j->",
        [(4,), (4, 6), (6,)],
        ["P(sum), S?(0), S?(0), R", "P(sum), R, S?(1), S?(0)"],
    ),
    # A factor without dims.
    (",i->i", [(), (4,)], ["S?(0), R, S?(0)"]),
    # A dim of size 1 is broadcast: its tensor stays whole.
    ("ij,ij->ij", [(4, 1), (4, 6)], ["S?(0), S?(0), S?(0)", "S?(1), R, S?(1)"]),
    ("mk,kn->mn", [(4, 1), (6, 8)], ["S?(0), S?(0), R", "P(sum), R, S?(0)", "S?(1), R, S?(1)"]),
    # Where all sizes are 1 nothing is broadcast.
    ("i,i->i", [(1,), (1,)], ["S?(0), S?(0), S?(0)"]),
]


@pytest.mark.parametrize(("equation", "shapes", "rows"), CUTS)
def test_each_letter_gives_a_row_in_order_of_first_appearance(
    equation: str, shapes: list[tuple[int, ...]], rows: list[str]
) -> None:
    assert rows_of(einsum(equation, linearity=False), *(meta(*shape) for shape in shapes)) == rows


def test_linearity_rows_follow_operand_by_operand_sum_before_avg() -> None:
    assert rows_of(einsum("i,ij,j->"), meta(4), meta(4, 6), meta(6))[2:] == [
        "P(sum), P(sum), R, R",
        "P(avg), P(avg), R, R",
        "P(sum), R, P(sum), R",
        "P(avg), R, P(avg), R",
        "P(sum), R, R, P(sum)",
        "P(avg), R, R, P(avg)",
    ]


def test_an_elementwise_product_has_no_row_with_two_partial_operands() -> None:
    rows = einsum("ij,ij->ij")(OP, (meta(2, 3), meta(2, 3)), {})
    assert max(sum(isinstance(entry, Partial) for entry in row[1:]) for row in rows) == 1


def test_an_integer_operand_is_never_an_average() -> None:
    whole, real = meta(4, 6, dtype=torch.int64), meta(6, 8, dtype=torch.float32)
    assert rows_of(einsum("mk,kn->mn"), whole, real)[3:] == [
        "P(sum), P(sum), R",
        "P(sum), R, P(sum)",
        "P(avg), R, P(avg)",
    ]


def test_an_average_of_integers_is_rounded_at_another_place_than_that_of_their_product() -> None:
    # Why the rows above are missing: the average of 1 and 2 is 1, twice that is 2; but that of
    # 2 and 4 is 3. torch's own rule for mm has these rows for any dtype.
    ranks = torch.tensor([[[1]], [[2]]])
    two = torch.tensor([[2]])

    def average(values: torch.Tensor) -> torch.Tensor:
        return values.sum(0) // len(values)

    assert average(ranks) @ two != average(ranks @ two)


def test_complex_operands_have_averages() -> None:
    tensor = meta(4, dtype=torch.complex64)
    assert rows_of(einsum("i->i"), tensor)[1:] == ["P(sum), P(sum)", "P(avg), P(avg)"]


@pytest.mark.parametrize(
    ("kwargs", "row"),
    [
        ({"b": meta(6, 8), "out": meta(4, 8)}, "P(sum), S?(1), S?(0), P(sum)"),
        ({"out": meta(4, 8), "b": meta(6, 8)}, "P(sum), S?(1), P(sum), S?(0)"),
        ({"b": meta(6, 8), "out": None}, "P(sum), S?(1), S?(0)"),
    ],
)
def test_an_out_tensor_is_placed_as_the_output_where_the_caller_wrote_it(
    kwargs: dict[str, Any], row: str
) -> None:
    assert rows_of(einsum("mk,kn->mn"), meta(4, 6), **kwargs)[1] == row


class SymbolicSize:
    """A size that, as torch's symbolic ones may, refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a guard on a symbolic size")

    __hash__ = None  # type: ignore[assignment]


def test_a_symbolic_size_is_not_compared() -> None:
    size: Any = SymbolicSize()
    rows = rows_of(einsum("ij,ij->ij", linearity=False), meta(4, size), meta(4, 1))
    assert rows == ["S?(0), S?(0), S?(0)", "S?(1), S?(1), R"]


def test_it_prints_canonically_and_compares_by_value() -> None:
    assert str(einsum(" mk, kn -> mn")) == "einsum(mk,kn->mn)"
    assert str(einsum("i->", linearity=False)) == "einsum(i->, linearity=False)"
    assert einsum("mk,kn->mn") == einsum("mk, kn->mn")
    assert einsum("i->") != einsum("i->", linearity=False)
    assert len({einsum("i->"), einsum("i ->")}) == 1


BAD = [
    ("mk,kn", 5, "expected '->' and the output's letters"),
    ("", 0, "expected '->' and the output's letters"),
    ("mk,k1->m", 4, "expected a letter, not '1'"),
    ("...k,k->", 0, "expected a letter, not '.'"),
    ("i->j->k", 4, "expected a letter, not '-'"),
    ("i->i,i", 4, "expected a letter, not ','"),
    ("é->é", 0, "expected a letter, not 'é'"),
    ("ij, ii->ij", 5, "'i' stands twice in one tensor: a diagonal has no sharding rule"),
    ("i->i i", 5, "'i' stands twice in one tensor: a diagonal has no sharding rule"),
    ("mk,kn->mx", 8, "no operand has the output's 'x'"),
]


@pytest.mark.parametrize(("equation", "position", "problem"), BAD)
def test_a_bad_equation_is_refused_with_a_caret_under_the_character(
    equation: str, position: int, problem: str
) -> None:
    with pytest.raises(NotationError) as caught:
        einsum(equation)
    assert (caught.value.text, caught.value.position) == (equation, position)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{problem}, at position {position}:"
    assert lines[1:3] == [f"    {equation}", f"    {' ' * position}^"]


def test_the_error_of_a_bad_equation_in_full() -> None:
    with pytest.raises(NotationError) as caught:
        einsum("ii->i")
    assert isinstance(caught.value, RegistryError)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "'i' stands twice in one tensor: a diagonal has no sharding rule, at position 1:\n"
        "    ii->i\n"
        "     ^\n"
        "  An equation looks like 'mk,kn->mn': the letters of each operand's dims, '->', and those"
        " of the output."
    )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [(4, 6), (2, 6, 8)],
            "einsum(mk,kn->mn): operand 2 is 'kn' and has 2 dims, but acme.product.default was"
            " called with shape (2, 6, 8) there",
        ),
        (
            [(4, 6)],
            "einsum(mk,kn->mn) has 2 operands, but acme.product.default was called with 1 tensors"
            " of shapes (4, 6)",
        ),
        (
            [],
            "einsum(mk,kn->mn) has 2 operands, but acme.product.default was called with 0 tensors"
            " of shapes none",
        ),
    ],
)
def test_tensors_that_do_not_match_the_equation_are_refused_by_name(
    shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match="einsum") as caught:
        rows_of(einsum("mk,kn->mn"), *(meta(*shape) for shape in shapes))
    assert str(caught.value) == message


TRUTH = [
    ("mk,kn->mn", [(5, 6), (6, 7)]),
    ("bmk,bkn->bmn", [(3, 4, 5), (3, 5, 6)]),
    ("bmk,bkn->mn", [(3, 4, 5), (3, 5, 6)]),
    ("k,k->", [(7,), (7,)]),
    ("mk,k->m", [(4, 5), (5,)]),
    ("i,ij,j->", [(4,), (4, 5), (5,)]),
    ("mk,n->mn", [(4, 5), (6,)]),
    (",i->i", [(), (5,)]),
    ("ijk->ki", [(3, 4, 5)]),
    ("->", [()]),
    ("ij,ij->ij", [(4, 1), (4, 5)]),
    ("mk,kn->mn", [(4, 1), (5, 6)]),
    ("i,i->i", [(1,), (1,)]),
]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex128])
@pytest.mark.parametrize(("equation", "shapes"), TRUTH)
def test_every_row_is_sound(
    equation: str, shapes: list[tuple[int, ...]], dtype: torch.dtype, ranks: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randint(-9, 10, shape, generator=generator).to(dtype) + 10 for shape in shapes]

    def product(*operands: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, *operands)

    for row in einsum(equation)(OP, tuple(tensors), {}):
        verdict = check_row(product, tensors, {}, row, ranks, allow_empty=True)
        assert verdict.outcome == "sound", verdict


def test_the_judge_of_the_test_above_sees_two_partial_operands() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    verdict = check_row(torch.mul, [x, x], {}, parse_placements("P, P, P"), 2)
    assert verdict.outcome == "unsound"


@pytest.fixture(params=[(4,), (2, 2)], ids=["1-D mesh", "2-D mesh"])
def mesh(request: pytest.FixtureRequest) -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        yield init_device_mesh("cpu", request.param)
    finally:
        dist.destroy_process_group()


def shown(strategy: Any) -> list[tuple[str, ...]]:
    """Print torch's candidates: the placements of the output and of each input over the mesh."""
    return [
        tuple(
            show_placements(spec.placements) for spec in (choice.output_spec, *choice.input_specs)
        )
        for choice in strategy.strategies
    ]


def expanded(rule: Einsum, mesh: DeviceMesh) -> list[tuple[str, ...]]:
    """Expand a rule for mm of (8, 8) and (8, 8) that come sharded and whole."""
    tensors = (meta(8, 8), meta(8, 8))
    inputs = [
        TensorInput((8, 8), ((placement,) * mesh.ndim,)) for placement in (Shard(0), REPLICATE)
    ]
    rows = fill_rows(rule(OP, tensors, {}), 1, inputs)
    problem = Problem(Topology.assumed(tuple(mesh.shape), 8), rows, 1, tuple(inputs))
    return [
        tuple(show_placements(tensor or ()) for tensor in (*choice.outputs, *choice.inputs))
        for choice in candidates(problem, lambda at, target: (0.0,))
    ]


def torch_single_dim(mesh: DeviceMesh) -> list[tuple[str, ...]]:
    """What torch makes of the rule that it reads first for mm, for the same call."""
    propagator = DTensor._op_dispatcher.sharding_propagator
    mm = torch.ops.aten.mm.default
    tensor_meta = TorchMeta(torch.Size((8, 8)), (8, 1), torch.float32)
    args = tuple(
        OpStrategy([OpSpec(DTensorSpec(mesh, (placement,) * mesh.ndim, tensor_meta))])
        for placement in (TorchShard(0), TorchReplicate())
    )
    schema = OpSchema(mm, args, {})
    info = propagator.op_single_dim_strategy_funcs[mm]
    expand = _expand_single_dim_strategy_to_mesh(mesh, schema, info, tensor_meta)
    return shown(expand(mm, schema.args_meta, schema.kwargs_meta))


def test_mm_expands_to_exactly_the_candidates_of_torchs_rule(mesh: DeviceMesh) -> None:
    ours, theirs = expanded(einsum("mk,kn->mn"), mesh), torch_single_dim(mesh)
    assert len(ours) == 8**mesh.ndim  # 3 letters, 4 linear rows, all-Replicate
    assert sorted(ours) == sorted(theirs)


def test_mm_without_linearity_expands_to_exactly_torchs_older_candidates(mesh: DeviceMesh) -> None:
    ours = expanded(einsum("mk,kn->mn", linearity=False), mesh)
    assert len(ours) == 4**mesh.ndim
    assert sorted(ours) == sorted(shown(gen_einsum_strategies("mk,kn->mn", mesh)))
