"""The exhaustive expansion: every combination of rows over the mesh dims.

It is the oracle of the search, and the full list for tools that want one. It looks at
`len(rows) ** len(mesh_shape)` combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

from dtensor_registry.placements import Placements, show_choice
from dtensor_registry.planner.problem import Candidate, Problem, combine
from dtensor_registry.planner.validity import objection

Price: TypeAlias = Callable[[int, Placements], tuple[float, ...]]
"""`price(input, target)`: microseconds to bring an input to `target`, one per source of it."""


def candidates(problem: Problem, price: Price) -> tuple[Candidate, ...]:
    """List every valid choice in row order, each once.

    Args:
        problem: rows, inputs and mesh.
        price: what bringing an input to a placement costs.
    """
    # Rows are distinct, so no two combinations can come out equal.
    return tuple(
        Candidate(
            rows, outputs, inputs, tuple(price(at, target) for at, target in enumerate(inputs))
        )
        for rows, outputs, inputs in _combinations(problem)
        if objection(problem, outputs, inputs) is None
    )


def objections(problem: Problem, at_most: int | None = None) -> tuple[str, ...]:
    """Say, for each combination that is not valid, which rows it takes and why it is not.

    Args:
        problem: rows, inputs and mesh.
        at_most: stop after so many; there can be `len(rows) ** len(mesh_shape)`.
    """
    found = (
        f"{show_choice(outputs, inputs)}: {reason}"
        for _, outputs, inputs in _combinations(problem)
        if (reason := objection(problem, outputs, inputs)) is not None
    )
    return tuple(itertools.islice(found, at_most))


def cheapest_exhaustive(problem: Problem, price: Price) -> Candidate | None:
    """Pick the candidate of least cost by looking at all of them.

    Among equals, inputs that stay as they are come first, then the order of rows: the same
    choice on every rank.

    Args:
        problem: rows, inputs and mesh.
        price: what bringing an input to a placement costs.

    Returns:
        The choice, or None when no combination is valid.
    """
    sources = tuple(tensor.sources[0] for tensor in problem.inputs)
    return min(
        candidates(problem, price),
        key=lambda candidate: (candidate.cost, candidate.inputs != sources),
        default=None,
    )


def _combinations(
    problem: Problem,
) -> Iterator[tuple[tuple[int, ...], tuple[Placements | None, ...], tuple[Placements, ...]]]:
    count = len(problem.rows)
    for rows in itertools.product(range(count), repeat=len(problem.mesh_shape)):
        yield (rows, *combine(problem, rows))
