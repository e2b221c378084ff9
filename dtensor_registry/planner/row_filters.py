"""Which rows a search looks at on one mesh dim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dtensor_registry.placements import Placement, cut_groups
from dtensor_registry.planner.problem import Grouped, Problem
from dtensor_registry.planner.row_table import Table
from dtensor_registry.planner.targets import Moves


class Open(NamedTuple):
    """A row that a search looks at, and the option of each input in it."""

    row: int
    options: tuple[int, ...]


def keep(
    problem: Problem,
    table: Table,
    moves: Sequence[Moves],
    mesh_dim: int,
    among: Iterable[int],
    finite: bool,
) -> list[Open]:
    """Leave out the rows that cannot be taken on a mesh dim, and those that an earlier one beats.

    A row cannot be taken if it alone, whatever is taken on other mesh dims, moves a pinned
    input, gives a tied output another placement than it has, cuts an input too often, cuts a
    group of an input or output, or makes an input partial that cannot be. An earlier row beats
    it if it does the same to each input and says the same of each output that could rule a
    combination out: any choice with the later row is as cheap, and as valid, with the earlier
    one.

    Args:
        problem: the call.
        table: its rows, told apart by tensor.
        moves: what each input can do.
        mesh_dim: the mesh dim.
        among: the rows to choose from, in order.
        finite: leave out rows that need a move of infinite price, too.
    """
    equivalence_keys = [move.equivalence_keys(mesh_dim, finite) for move in moves]
    ties = [
        (table.outputs[output].of_row, problem.inputs[tied].sources[0][mesh_dim])
        for output, tied in problem.ties
        if not table.outputs[output].masked
    ]
    grouped = _grouped_outputs(problem)
    telling = [
        output.of_row
        for at, output in enumerate(table.outputs)
        if output.kinds or output.masked or at in grouped
    ]
    cuts = [
        (table.outputs[at].of_row, dim)
        for at, dims in grouped.items()
        if not table.outputs[at].masked
        for dim in dims
    ]
    ranks = problem.mesh_shape[mesh_dim : mesh_dim + 1]
    seen: set[tuple[object, ...]] = set()
    kept: list[Open] = []
    for row in among:
        if any(of_row[row] != must for of_row, must in ties):
            continue
        if cuts and any(_cuts_groups(of_row[row], ranks, dim) for of_row, dim in cuts):
            continue
        options = table.options[row]
        done = [there[option] for there, option in zip(equivalence_keys, options, strict=True)]
        if None in done:
            continue
        what = (*done, *[of_row[row] for of_row in telling])
        if what not in seen:
            seen.add(what)
            kept.append(Open(row, options))
    return kept


def _grouped_outputs(problem: Problem) -> dict[int, list[Grouped]]:
    """List by output the dims that hold groups."""
    found: dict[int, list[Grouped]] = {}
    for dim in problem.grouped:
        if dim.position < problem.num_outputs:
            found.setdefault(dim.position, []).append(dim)
    return found


def _cuts_groups(placement: Placement | None, ranks: tuple[int, ...], dim: Grouped) -> bool:
    """Say whether one mesh dim alone would cut a group.

    Then it does so together with any others: ranks only multiply.
    """
    if placement is None:  # an output that is never a tensor
        return False
    return cut_groups((placement,), ranks, dim.tensor_dim, dim.groups) is not None
