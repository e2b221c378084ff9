"""Bare torch and the registry in turn, in one process, on the same random calls."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate, Shard, _sharding_prop
from torch.distributed.tensor._op_schema import OpSchema

import dtensor_registry as dr
from benchmarks.cases import BARE_UP_TO, Subject, mesh_of
from benchmarks.figure import BOTH, Figure, Side
from dtensor_registry.torch_runtime import decide


class Switch:
    """Has the registry in force or not; plugins are left out, torch's own rules adopted.

    What is compared is the expansion of the same rules: with plugins, another rule might win.
    """

    def __init__(self) -> None:
        self._installation = dr.install(dr.Settings(allowed=()))
        self._installation.uninstall()

    @contextmanager
    def on(self, side: Side, new_shapes: bool = False) -> Iterator[None]:
        """Put one side in force, with no decision cached.

        Args:
            side: which.
            new_shapes: whether to forget as well what fake tensors give for which shapes.
        """
        if side == "registry":
            self._installation.hold()
        if new_shapes:
            FakeTensorMode.cache_clear()
        DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
        torch._C._clear_DTensor_sharding_propagator_cache()
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            if side == "registry":
                self._installation.uninstall()


def decisions(
    subject: Subject, ndim: int, switch: Switch, runs: int, seconds: float
) -> list[Figure]:
    """Measure cold decisions of one op on one mesh.

    Args:
        subject: the op.
        ndim: mesh dims.
        switch: between the two sides.
        runs: random calls, each decided by both.
        seconds: after which no further call is begun, once there is one.

    Returns:
        The whole decision, for one op the same where shapes are new too, the expansion within
        it, and the search within that.
    """
    sides = BOTH if ndim <= BARE_UP_TO else BOTH[1:]
    taken: dict[str, dict[str, list[float]]] = {}

    def note(what: str, side: str, milliseconds: float) -> None:
        taken.setdefault(what, {}).setdefault(side, []).append(milliseconds)

    end = time.perf_counter() + seconds
    done = 0
    while done < runs and (done == 0 or time.perf_counter() < end):
        call, earlier = (subject.draw(mesh_of(ndim), seed) for seed in (done, -done - 1))
        for side in sides if done % 2 else sides[::-1]:
            with switch.on(side):
                _warm_up(side, earlier)
                note("whole decision", side, _milliseconds(_decide, call))
            if subject.name == "mm":
                with switch.on(side, new_shapes=True):
                    note("whole, new shapes", side, _milliseconds(_decide, call))
            with switch.on(side), _searching() as spent:
                _warm_up(side, earlier)
                spent.clear()
                note("expansion", side, _expansion(call))
            if spent:
                note("search alone", side, sum(spent))
        done += 1
    return [_figure(f"{subject.name}: {what}", ndim, taken[what], done) for what in taken]


def _warm_up(side: Side, earlier: OpSchema) -> None:
    """Let a side keep what it does of an earlier call that differs in placements alone.

    Bare torch keeps the shapes that fake tensors gave, the registry also the rows of the rule.
    """
    if side == "registry":
        _decide(earlier)
    else:  # to decide would change nothing and take its time
        DTensor._op_dispatcher.sharding_propagator._propagate_tensor_meta_non_cached(earlier)


def hot_dispatch(switch: Switch, blocks: int, calls: int) -> list[Figure]:
    """Measure calls whose decision torch has cached, in alternating blocks."""
    mesh = mesh_of(2)
    x = DTensor.from_local(torch.ones(8, 16), mesh, [Shard(0), Replicate()], run_check=False)
    y = DTensor.from_local(torch.ones(16, 16), mesh, [Replicate()] * 2, run_check=False)
    figures = []
    for name, call in (("mm", lambda: torch.mm(x, y)), ("add", lambda: torch.add(x, x))):
        taken: dict[str, list[float]] = {side: [] for side in BOTH}
        for block in range(blocks):
            for side in BOTH if block % 2 else BOTH[::-1]:
                with torch.no_grad(), switch.on(side):
                    for _ in range(20):
                        call()
                    spent = _milliseconds(_repeat, call, calls)
                    taken[side].append(spent / calls * 1e3)
        figures.append(_figure(f"{name}: hot dispatch", 2, taken, blocks, "us"))
    return figures


def _decide(schema: OpSchema) -> Any:
    return DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding_non_cached(schema)


def _expansion(schema: OpSchema) -> float:
    """Time the way from a rule to its best choice, the call read and its outputs known."""
    prop = DTensor._op_dispatcher.sharding_propagator
    outputs = prop._propagate_tensor_meta_non_cached(schema)
    wrapped = prop._wrap_with_op_strategy(schema)
    info = prop.op_single_dim_strategy_funcs[schema.op]
    mesh = wrapped.get_mesh_from_args()

    def expand() -> Any:
        # Looked up at each call: the registry stands in for this very name.
        expanded = _sharding_prop._expand_single_dim_strategy_to_mesh(mesh, wrapped, info, outputs)
        strategy: Any = expanded(schema.op, wrapped.args_meta, wrapped.kwargs_meta)
        return _sharding_prop._select_min_cost_strategy(strategy, schema)

    return _milliseconds(expand)


@contextmanager
def _searching() -> Iterator[list[float]]:
    """Collect the milliseconds that the registry spends in its search."""
    spent: list[float] = []
    host: Any = decide
    search = host.cheapest

    def timed(*given: Any) -> Any:
        begin = time.perf_counter()
        found = search(*given)
        spent.append((time.perf_counter() - begin) * 1e3)
        return found

    host.cheapest = timed
    try:
        yield spent
    finally:
        host.cheapest = search


def _milliseconds(run: Callable[..., Any], *given: Any) -> float:
    begin = time.perf_counter()
    run(*given)
    return (time.perf_counter() - begin) * 1e3


def _repeat(call: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        call()


def _figure(
    what: str, ndim: int, taken: dict[str, list[float]], runs: int, unit: str = "ms"
) -> Figure:
    bare = statistics.median(taken["bare"]) if taken.get("bare") else None
    return Figure(what, ndim, bare, statistics.median(taken["registry"]), runs, unit)
