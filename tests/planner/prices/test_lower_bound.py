"""Prices of half-chosen targets: exact at the end, never too high before."""

from __future__ import annotations

import math
from typing import Any

from dtensor_registry.placements import REPLICATE, Partial, Placement, Shard
from dtensor_registry.planner import SLACK, LowerBound, Topology, price

TARGETS = 1_500


def test_a_target_chosen_to_the_end_has_the_price_to_the_last_bit(draw: Any) -> None:
    for _ in range(TARGETS):
        mesh_shape, shape = draw.mesh_shape(), draw.shape()
        topology = Topology.assumed(mesh_shape, devices_per_host=8)
        source = draw.placements(len(shape), mesh_shape)
        target = draw.target(len(shape), source)
        nbytes = draw.nbytes(shape)
        options = list(dict.fromkeys(target))
        lower_bound = LowerBound(source, options, nbytes, topology)
        chosen = lower_bound.start
        for mesh_dim, placement in enumerate(target):
            chosen = lower_bound.choose(chosen, mesh_dim, options.index(placement), factor=1.0)
        assert chosen.floor == price(source, target, nbytes, topology)


def test_no_completion_undercuts_the_floor_of_a_half_chosen_target(draw: Any) -> None:
    tight = 0
    for _ in range(TARGETS):
        mesh_shape, shape = draw.mesh_shape(), draw.shape()
        topology = Topology.assumed(mesh_shape, devices_per_host=8)
        source = draw.placements(len(shape), mesh_shape)
        target = draw.target(len(shape), source)
        nbytes = draw.nbytes(shape)
        # On each mesh dim only some options are open, the target's among them.
        options = list(dict.fromkeys((*target, *draw.placements(len(shape), (1, 1, 1)))))
        among = [
            sorted({options.index(placement), draw.rng.randrange(len(options))})
            for placement in target
        ]
        lower_bound = LowerBound(source, options, nbytes, topology)
        bounds = lower_bound.bounds(among)
        paid = price(source, target, nbytes, topology)
        chosen = lower_bound.start
        for mesh_dim, placement in enumerate(target):
            to_come = [
                bounds.added[inner][options.index(target[inner])]
                for inner in range(mesh_dim, len(target))
            ]
            floor = chosen.floor + sum(to_come)
            assert floor * SLACK <= paid, (source, target, mesh_shape, mesh_dim)
            tight += floor > 0.99 * paid > 0
            chosen = lower_bound.choose(
                chosen, mesh_dim, options.index(placement), bounds.factors[mesh_dim + 1]
            )
    # A bound of zero would be admissible too.
    assert tight > TARGETS / 2


def test_a_whole_tensor_has_one_effect_for_replicate_and_every_partial() -> None:
    options: list[Placement] = [REPLICATE, Partial("sum"), Partial("max"), Shard(0)]
    topology = Topology.assumed((2, 2), devices_per_host=8)
    whole, partial = LowerBound((REPLICATE, Partial("sum")), options, 64, topology).effects
    assert whole[0] is whole[1] is whole[2] is not whole[3]
    assert len(set(partial)) == 4


def test_an_option_that_cannot_be_reached_says_so_and_costs_without_end() -> None:
    options: list[Placement] = [REPLICATE, Partial("sum")]
    topology = Topology.assumed((2,), devices_per_host=8)
    lower_bound = LowerBound((Shard(0),), options, 64, topology)
    assert [effect.possible for effect in lower_bound.effects[0]] == [True, False]
    assert lower_bound.choose(lower_bound.start, 0, 1).floor == math.inf
