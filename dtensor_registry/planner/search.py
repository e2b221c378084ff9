"""The cheapest choice for a whole mesh, found without looking at every one.

The answer is the oracle's, `cheapest_exhaustive`: least cost, then inputs that stay as they
are, then the order of rows. See docs/search.md.
"""

from __future__ import annotations

import math

from dtensor_registry.planner.branch_and_bound import Search
from dtensor_registry.planner.problem import Candidate, Problem, combine
from dtensor_registry.planner.result import SearchResult
from dtensor_registry.planner.row_table import row_table
from dtensor_registry.planner.targets import Ask, Moves
from dtensor_registry.planner.validity import objection


def cheapest(problem: Problem, ask: Ask | None = None) -> SearchResult | None:
    """Find the choice of least cost.

    Args:
        problem: rows, inputs and mesh; every input with one source.
        ask: what torch itself expects a move to take, called where only torch can tell.

    Returns:
        The choice, or None when no combination of rows is valid.

    Raises:
        ValueError: if an input has several sources, or if only torch can price it and `ask`
            is None.

    >>> from dtensor_registry.planner import Topology
    >>> from dtensor_registry.planner.problem import TensorInput
    >>> from dtensor_registry.placements import REPLICATE, Shard
    >>> x = TensorInput((8,), ((Shard(0), REPLICATE),), nbytes=32)
    >>> rows = ((REPLICATE, REPLICATE), (Shard(0), Shard(0)))
    >>> mesh = Topology.assumed((2, 2), devices_per_host=8)
    >>> print(cheapest(Problem(mesh, rows, 1, (x,))).candidate)
    (S(0), R) <- (S(0), R)  0.00 us
    """
    if any(len(tensor.sources) != 1 for tensor in problem.inputs):
        raise ValueError("a search needs inputs with one source each; see `candidates`")
    table = row_table(problem.rows, problem.num_outputs)
    has = [
        tuple([entries.index.get(placement, -1) for placement in tensor.sources[0]])
        for entries, tensor in zip(table.inputs, problem.inputs, strict=True)
    ]
    mesh_dims = range(len(problem.mesh_shape))
    staying = [
        table.rows_of.get(tuple([options[mesh_dim] for options in has]), ())
        for mesh_dim in mesh_dims
    ]
    stays = all(staying)
    if stays:
        found = _unmoved(problem, tuple([rows[0] for rows in staying]))
        if found is not None:
            return found
    moves = [
        Moves(problem, position, entries, has[position], ask)
        for position, entries in enumerate(table.inputs)
    ]
    if stays and any(len(rows) > 1 for rows in staying):
        # Other outputs may be valid. Staying costs nothing and wins every tie.
        found = Search(problem, table, moves, staying).first()
        if found is not None:
            return found
    every = [range(len(problem.rows)) for _ in mesh_dims]
    found = Search(problem, table, moves, every).cheapest()
    if found is not None and found.cost < math.inf:
        return found
    # All that is left is infinitely dear, so that the order of rows alone decides.
    return Search(problem, table, moves, every, finite=False).first()


def _unmoved(problem: Problem, rows: tuple[int, ...]) -> SearchResult | None:
    outputs, inputs = combine(problem, rows)
    if objection(problem, outputs, inputs) is not None:
        return None
    candidate = Candidate(rows, outputs, inputs, ((0.0,),) * len(inputs))
    return SearchResult(candidate, problem, tuple([(row,) for row in rows]), 0, 1)
