"""A decision is never used again for a call in which an argument that rows depend on differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dtensor_registry as dr
from dtensor_registry import SchemaInfo
from dtensor_registry import ShardingPlaceholder as S
from tests.schema.kind import Kind, numbers
from tests.schema.world import S0, P, R, local_ranks, on_mesh
from tests.schema_matrix import KINDS

BY_NAME = {str(kind.op): kind for kind in KINDS}
KEYED = ("flag", "how", "scale", "along", "kwflag", "typed", "tile", "later", "masked", "multiples")


@torch.library.custom_op("schema_stale::doubled", mutates_args=())
def doubled(x: Tensor, step: float, *, other: float = 0.0) -> Tensor:
    return x * 2


@doubled.register_fake
def _(x: Tensor, step: float, *, other: float = 0.0) -> Tensor:
    return torch.empty_like(x)


NUMBER = torch.library.Library("schema_stale", "FRAGMENT")
NUMBER.define("number(Tensor x, Scalar s) -> Tensor")
NUMBER.impl("number", lambda x, s: x * s, "CompositeExplicitAutograd")


def counted(asked: list[Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    """Write down each time a rule is asked."""

    def ask(op: Any, args: Any, kwargs: Any) -> Any:
        asked.append((args[1:], kwargs))
        return rule(op, args, kwargs)

    return ask


def by_name(name: str) -> Kind:
    return BY_NAME[f"schema_matrix.{name}.default"]


@pytest.mark.parametrize("name", KEYED)
def test_the_rule_is_asked_again_when_an_argument_that_is_no_tensor_differs(name: str) -> None:
    kind = by_name(name)
    asked: list[Any] = []
    with local_ranks(4) as mesh:
        x = on_mesh(kind.tensors[0], (S0,), mesh)
        with dr.register_single_dim_strategy(kind.op)(counted(asked, kind.known_rule)):
            for call in kind.calls:
                for _ in range(3):
                    args, kwargs = call([x, *kind.tensors[1:]])
                    kind.op(*args, **kwargs)
    # A keyword argument that is left out or given its default may share a decision.
    assert len(kind.calls) - ("kw" in name) <= len(asked) <= len(kind.calls)


@pytest.mark.parametrize("narrowed", [False, True])
def test_an_argument_is_out_of_the_key_only_where_the_author_says_so(narrowed: bool) -> None:
    asked: list[Any] = []
    info = SchemaInfo(static_kwargkey=("other",)) if narrowed else None
    rule = counted(asked, lambda *_: [[S(0), S(0)]])
    with local_ranks(2) as mesh:
        x = on_mesh(numbers(8, 4), (S0,), mesh)
        with dr.register_single_dim_strategy(doubled, schema_info=info)(rule):
            for step in range(5):
                doubled(x, float(step))
    assert len(asked) == (1 if narrowed else 5)


def test_the_placement_of_a_kwarg_tensor_is_in_the_key() -> None:
    kind = by_name("kwt")
    with local_ranks(2) as mesh, dr.register_single_dim_strategy(kind.op)(kind.known_rule):
        x = on_mesh(kind.tensors[0], (R,), mesh)
        expected = kind.op(kind.tensors[0], y=kind.tensors[1])
        for placement in (R, S0, P, R):
            y = on_mesh(kind.tensors[1], (placement,), mesh)
            torch.testing.assert_close(kind.op(x, y=y).full_tensor().reconcile(), expected)


def test_numbers_that_are_equal_and_of_another_type_are_other_calls() -> None:
    asked: list[Any] = []
    op = torch.ops.schema_stale.number.default
    rule = counted(asked, lambda *_: [[S(0), S(0)]])
    with local_ranks(2) as mesh, dr.register_single_dim_strategy(op)(rule):
        x = on_mesh(torch.ones(8, 4, dtype=torch.int64), (S0,), mesh)
        dtypes = [op(x, number).dtype for number in (2, 2.0, 2, 2.0, True)]
    assert dtypes == [torch.int64, torch.float32, torch.int64, torch.float32, torch.int64]
    assert [args for args, _ in asked] == [(2,), (2.0,), (True,)]
    assert [type(args[0]) for args, _ in asked] == [int, float, bool]


def test_a_number_in_a_tensors_place_decides_nothing_since_torch_caches_without_it() -> None:
    def only_zero(op: Any, args: Any, kwargs: Any) -> Any:
        return [[dr.Partial("sum"), dr.Partial("sum")]] if args[1] == 0 else []

    with local_ranks(2) as mesh, dr.register_single_dim_strategy("aten.add.Tensor")(only_zero):
        x = on_mesh(numbers(4, 2), (P,), mesh)
        for number in (0, 1, 0.0, 2.5):
            found = (x + number).full_tensor().reconcile()
            torch.testing.assert_close(found, numbers(4, 2) + number)
