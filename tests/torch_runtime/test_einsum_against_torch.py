"""The einsum rule for `mk,kn->mn` beside torch's own rule for mm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.discovery import Origin
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_runtime.decide import TORCH_EXPAND, expand
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry.torch_runtime.installed_rule import InstalledRule

MM = torch.ops.aten.mm.default
R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
HERE = Origin("test", "test", "0", SourceLine(__file__, 1))


@pytest.fixture(params=[(4,), (2, 2)], ids=["1-D", "2-D"])
def mesh(request: pytest.FixtureRequest) -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", request.param)
    dist.destroy_process_group()


def on(mesh: Any, placements: Any, shape: tuple[int, int] = (16, 16)) -> Any:
    whole = torch.empty(shape, device="meta")
    local = torch.empty(
        [
            size // 4 ** sum(p == Shard(d) for p in placements)
            if mesh.ndim == 1
            else size // 2 ** sum(p == Shard(d) for p in placements)
            for d, size in enumerate(shape)
        ]
    )
    return DTensor.from_local(
        local, mesh, placements, shape=torch.Size(shape), stride=whole.stride()
    )


def asked(mesh: Any, *sources: list[Any]) -> tuple[OpSchema, Any]:
    """Make the question of a call, each input with one or more sources."""
    specs = [[on(mesh, placements)._spec for placements in given] for given in sources]
    schema = OpSchema(MM, tuple(OpStrategy([OpSpec(s) for s in given]) for given in specs), {})
    return schema, specs[0][0].tensor_meta


def every_candidate(strategy: Any) -> list[tuple[Any, ...]]:
    return [
        (spec.output_spec.placements, *(given.placements for given in spec.input_specs))
        for spec in strategy.strategies
    ]


def ours(mesh: Any, *sources: list[Any], rule: Any = None) -> Any:
    schema, meta = asked(mesh, *sources)
    info = _SingleDimStrategyInfo(InstalledRule(rule or dr.einsum("mk,kn->mn"), HERE))
    return expand(mesh, schema, info, meta)(MM, schema.args_meta, schema.kwargs_meta)


def torchs(mesh: Any, *placements: Any) -> Any:
    schema, meta = asked(mesh, *([p] for p in placements))
    info = propagator().op_single_dim_strategy_funcs[MM]
    return TORCH_EXPAND(mesh, schema, info, meta)(MM, schema.args_meta, schema.kwargs_meta)


def pairs(mesh: Any) -> list[tuple[Any, Any]]:
    """Every pair of placements of {R, S(0), S(1), P(sum)} that has a sharded input."""
    each = itertools.product((R, S0, S1, P), repeat=mesh.ndim)
    return [
        pair
        for pair in itertools.product(each, repeat=2)
        if any(isinstance(p, Shard) for placements in pair for p in placements)
    ]


def test_the_candidates_are_torchs_own_and_cost_what_torch_says(mesh: Any) -> None:
    by_torch = torchs(mesh, (S0, S0)[: mesh.ndim], (S0, S1)[: mesh.ndim])
    # Two sources for one input: the host lists all candidates then, and not only the best.
    first = [(S0, S0)[: mesh.ndim]]
    second = [(S0, S1)[: mesh.ndim], (R, R)[: mesh.ndim]]
    by_us = ours(mesh, first, second)
    assert set(every_candidate(by_us)) == set(every_candidate(by_torch))
    assert len(by_us.strategies) == len(set(every_candidate(by_us)))
    specs = [[on(mesh, p)._spec for p in given] for given in (first, second)]
    for candidate in by_us.strategies:
        assert candidate.redistribute_cost == [
            [redistribute_cost(source, target) for source in given]
            for given, target in zip(specs, candidate.input_specs, strict=True)
        ]


def test_the_choice_costs_no_more_than_torchs_best_for_any_placements(mesh: Any) -> None:
    def cost(spec: Any) -> float:
        return sum(sum(costs) for costs in spec.redistribute_cost)

    for x, y in pairs(mesh)[:: 1 if mesh.ndim == 1 else 11]:
        (choice,) = ours(mesh, [x], [y]).strategies
        assert cost(choice) == min(map(cost, torchs(mesh, x, y).strategies)), (x, y)


@pytest.mark.parametrize(
    "rule",
    [
        dr.einsum("mk,kn->mn"),
        lambda op, args, kwargs: [[S0, S0, R]] * 3 + [[dr.ShardingPlaceholder(0)] * 2 + [R]],
    ],
    ids=["einsum", "a rule that repeats itself"],
)
def test_no_two_candidates_are_identical(mesh: Any, rule: Any) -> None:
    for x, y in pairs(mesh)[::9]:
        found = every_candidate(ours(mesh, [x, x], [y], rule=rule))
        assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("x", "y", "out"), [(S0, R, S0), (R, S1, S1), (S1, S0, P), (R, R, R)], ids=str
)
def test_a_candidate_that_costs_nothing_exists_and_is_chosen(
    mesh: Any, x: Any, y: Any, out: Any
) -> None:
    stay = [((placement, R)[: mesh.ndim]) for placement in (x, y)]
    free = [
        spec
        for spec in ours(mesh, [stay[0]] * 2, [stay[1]]).strategies
        if not any(sum(costs) for costs in spec.redistribute_cost)
    ]
    assert tuple(stay) in [tuple(given.placements for given in spec.input_specs) for spec in free]
    with dr.register_single_dim_strategy(MM)(dr.einsum("mk,kn->mn")):
        result = torch.mm(on(mesh, stay[0]), on(mesh, stay[1]))
        assert result.placements == (out, R)[: mesh.ndim]
        answer = propagator().propagate_op_sharding_non_cached(
            OpSchema(MM, (on(mesh, stay[0])._spec, on(mesh, stay[1])._spec), {})
        )
        assert not answer.needs_redistribute
