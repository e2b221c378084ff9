"""Errors of calls that cannot be decided say which op, which argument, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement

import dtensor_registry as dr
from dtensor_registry import ShardingPlaceholder as S
from dtensor_registry.errors import RegistryError
from tests.schema.kind import numbers
from tests.schema.world import S0, S1, P, R, local_ranks, on_mesh
from tests.schema_matrix import KINDS

NO_STRATEGY = "Operator {} does not have a sharding strategy registered."
OPS = torch.ops.schema_matrix
ATEN = torch.ops.aten
RULES = {str(kind.op): kind.rule for kind in KINDS if kind.rule is not None}


@pytest.fixture
def mesh(repository_plugins: None) -> Iterator[DeviceMesh]:
    """Four ranks, and every plugin but no fallback."""
    with local_ranks(4) as mesh, dr.install():
        yield mesh


def given(mesh: DeviceMesh, *placements: Placement) -> list[DTensor]:
    return [on_mesh(numbers(8, 4, step=at + 3), (p,), mesh) for at, p in enumerate(placements)]


def said_by(call: Any) -> tuple[BaseException, str]:
    """Give the error of a call and its text."""
    try:
        call()
    except Exception as error:
        return error, str(error)
    pytest.fail("the call was not refused")


def ours(error: BaseException) -> bool:
    """Say whether an error, or what torch wrapped it around, is the registry's."""
    return isinstance(error, RegistryError) or isinstance(error.__cause__, RegistryError)


@pytest.mark.parametrize("op", [ATEN.nonzero.default, OPS.dyn.default, OPS.sym.default], ids=str)
def test_an_output_shape_that_depends_on_data_is_told_as_such(mesh: DeviceMesh, op: Any) -> None:
    (x,) = given(mesh, S0)
    error, said = said_by(lambda: op(x))
    assert isinstance(error, NotImplementedError)
    assert ours(error)
    # torch's own first words, for those who search for them.
    assert said.startswith(NO_STRATEGY.format(op))
    assert "shape of its output depends on the data" in said
    assert "fallback" in said.lower()


def test_no_strategy_names_inputs_mesh_and_both_ways_out(mesh: DeviceMesh) -> None:
    x, y = given(mesh, S0, R)
    error, said = said_by(lambda: OPS.fn(x, y))
    assert isinstance(error, NotImplementedError)
    assert said.splitlines()[0] == NO_STRATEGY.format("schema_matrix.fn.default")
    assert "x: (8, 4)@(S(0))" in said
    assert "y: (8, 4)@(R)" in said
    assert "(4,)" in said
    assert "SingleDimStrategy('schema_matrix.fn.default', rule)" in said
    assert "DTENSOR_REGISTRY_FALLBACK__MODE" in said


BEFORE_THE_HOST = pytest.mark.xfail(
    reason="torch's C++ raises before it asks any Python, and names the op only", strict=True
)
# A call in which a plain tensor of shape (8, 4) is mixed with DTensors, and its argument's name.
MIXED = [
    pytest.param(lambda x, t: ATEN.add.Tensor(x, t), "other", marks=BEFORE_THE_HOST, id="add"),
    pytest.param(lambda x, t: ATEN.add.Tensor(t, x), "self", marks=BEFORE_THE_HOST, id="radd"),
    pytest.param(lambda x, t: OPS.fn(x, t), "y", marks=BEFORE_THE_HOST, id="an op without a rule"),
    pytest.param(
        lambda x, t: ATEN.cat.default([x, t]), "tensors[1]", marks=BEFORE_THE_HOST, id="in a list"
    ),
    pytest.param(lambda x, t: OPS.kwt(x, y=t), "y", id="as a keyword argument"),
]


@pytest.mark.parametrize(("call", "argument"), MIXED)
def test_a_plain_tensor_among_dtensors_is_named(mesh: DeviceMesh, call: Any, argument: str) -> None:
    (x,) = given(mesh, S0)
    error, said = said_by(lambda: call(x, numbers(8, 4)))
    assert ours(error)
    assert "got mixed torch.Tensor and DTensor" in said
    assert f"argument {argument!r}, shape (8, 4)" in said
    assert f"distribute_tensor({argument}, " in said


def test_a_plain_tensor_is_named_by_the_executor_too(mesh: DeviceMesh) -> None:
    (x,) = given(mesh, S0)
    op = OPS.kwt.default
    with dr.register_single_dim_strategy(op)(RULES[str(op)]):
        _, said = said_by(lambda: op(x, y=numbers(8, 4)))
    assert "argument 'y', shape (8, 4)" in said


# In-place calls on a pending sum, which cannot stay one: further arguments, what is shown of the
# placement, and the out-of-place form. By default torch's own rules answer, with torch's words.
PLUGINS_FIRST = ["*", "pointwise", "matrix", "structure", "torch"]
IN_PLACE = {
    "relu_ of a pending sum": (ATEN.relu_.default, (), "P(sum)", "relu"),
    "exp_ of a pending sum": (ATEN.exp_.default, (), "P(sum)", "exp"),
    "clamp_ of a pending sum": (ATEN.clamp_.default, (0.0,), "P(sum)", "clamp"),
}


@pytest.mark.parametrize("case", IN_PLACE)
def test_in_place_on_an_incompatible_placement_names_the_form_that_works(
    mesh: DeviceMesh, case: str
) -> None:
    op, extra, shown, form = IN_PLACE[case]
    (x,) = given(mesh, P)
    with dr.install(order=PLUGINS_FIRST):
        error, said = said_by(lambda: op(x, *extra))
    assert ours(error)
    assert str(op) in said
    assert "'self'" in said
    assert shown in said
    assert re.search(rf"\b{form}\b", said)


def test_every_row_that_fails_is_told_with_mesh_dim_and_reason(mesh: DeviceMesh) -> None:
    op = OPS.mut.default
    x, v = given(mesh, P, S1)
    with dr.register_single_dim_strategy(op)(lambda *_: [[S(0)] * 3, [S(1)] * 3]):
        error, said = said_by(lambda: op(x, v))
    assert ours(error)
    assert "schema_matrix.mut.default: no row of its sharding rule fits these inputs." in said
    assert "tests/schema/test_refusals.py" in said
    for row in ("(R) <- (R), (R)", "(S(0)) <- (S(0)), (S(0))", "(S(1)) <- (S(1)), (S(1))"):
        assert row in said
    assert "must stay (P(sum))" in said
