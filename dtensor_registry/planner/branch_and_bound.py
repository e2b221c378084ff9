"""Branch and bound over the mesh dims, outermost first.

A node is a choice of rows for the outermost mesh dims, a leaf is one for all of them. Rows
that need not be looked at on a mesh dim are left out beforehand. Each input keeps a tree of
its targets, so that none is priced twice; the floor of a node is the sum of its targets'
floors and of what the open mesh dims add at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dtensor_registry.planner.lower_bound import SLACK
from dtensor_registry.planner.problem import Candidate, Problem, combine
from dtensor_registry.planner.result import SearchResult
from dtensor_registry.planner.row_filters import keep
from dtensor_registry.planner.row_table import Table
from dtensor_registry.planner.targets import Moves, Target
from dtensor_registry.planner.validity import objection

_UNSEEN = Target((), 0.0, None, None, 0, False)


class _Node(NamedTuple):
    """A choice of rows for the outermost mesh dims, or for all of them.

    Attributes:
        floor: microseconds that no completion undercuts; the cost of a leaf.
        rows: the row on each of those mesh dims.
        targets: where each input goes on them.
        kinds: for each output that could clash, the bits of its kinds of partial.
    """

    floor: float
    rows: tuple[int, ...]
    targets: Sequence[Target]
    kinds: tuple[int, ...]


class Search:
    """One search for a call.

    Args:
        problem: the call.
        table: its rows, told apart by tensor.
        moves: what each input can do.
        among: the rows to look at on each mesh dim.
        finite: look only at moves of finite price.
    """

    def __init__(
        self,
        problem: Problem,
        table: Table,
        moves: Sequence[Moves],
        among: Sequence[Iterable[int]],
        finite: bool = True,
    ) -> None:
        self._problem = problem
        self._moves = moves
        self._open = [
            keep(problem, table, moves, mesh_dim, rows, finite)
            for mesh_dim, rows in enumerate(among)
        ]
        self._innermost = len(self._open) - 1
        self._outputs = [
            output.kinds for output in table.outputs if output.kinds and not output.masked
        ]
        self._factors: Sequence[Sequence[float]] = [[0.0] * len(moves)] * len(self._open)
        self._to_come: Sequence[float] = [0.0] * len(self._open)
        self._best: Candidate | None = None
        self._best_cost = math.inf
        self._nodes = 0
        self._leaves = 0

    def cheapest(self) -> SearchResult | None:
        """Find the choice of least cost, the first in row order among equals."""
        if all(self._open):
            if self._innermost > 0:
                self._bound()
            self._descend(self._root())
        return self._choice()

    def first(self) -> SearchResult | None:
        """Find the first valid choice in row order, whatever it costs."""
        if all(self._open):
            self._walk(self._root())
        return self._choice()

    def _root(self) -> _Node:
        return _Node(0.0, (), [move.start() for move in self._moves], (0,) * len(self._outputs))

    def _choice(self) -> SearchResult | None:
        if self._best is None:
            return None
        kept = tuple(tuple(row for row, _ in there) for there in self._open)
        return SearchResult(self._best, self._problem, kept, self._nodes, self._leaves)

    def _bound(self) -> None:
        """Work out what the open mesh dims add at least, and by what they scale the rest."""
        bounds = [
            None
            if move.lower_bound is None
            else move.lower_bound.bounds(
                [{options[at] for _, options in rows} for rows in self._open]
            )
            for at, move in enumerate(self._moves)
        ]
        factors: list[list[float]] = []
        to_come = [0.0]
        for mesh_dim in reversed(range(len(self._open))):
            factors.append([0.0 if b is None else b.factors[mesh_dim + 1] for b in bounds])
            added = [None if b is None else b.added[mesh_dim] for b in bounds]
            least = min(
                [
                    sum([by[at] for by, at in zip(added, options, strict=True) if by is not None])
                    for _, options in self._open[mesh_dim]
                ]
            )
            to_come.append(to_come[-1] + least)
        self._factors = factors[::-1]
        self._to_come = to_come[-2::-1]

    def _descend(self, node: _Node) -> None:
        """Follow a node further in, the most promising child first."""
        self._nodes += 1
        children = self._children(node)
        children.sort(key=_floor)  # equal floors stay in row order
        leaves = len(node.rows) == self._innermost
        slack = 1.0 if leaves else SLACK
        for child in children:
            if child.floor * slack > self._best_cost:
                return
            # The floor of a leaf is its cost, and nothing undercuts 0: at best a tie.
            final = leaves or self._best_cost == 0.0
            if final and child.floor >= self._best_cost and not self._precedes(child.rows):
                continue
            if leaves:
                self._take(child)
            else:
                self._descend(child)

    def _walk(self, node: _Node) -> None:
        """Follow a node further in, in row order, until something is found."""
        self._nodes += 1
        for child in self._children(node):
            if len(child.rows) > self._innermost:
                self._take(child)
            else:
                self._walk(child)
            if self._best is not None:
                return

    def _children(self, node: _Node) -> list[_Node]:
        """List in row order what a node can become that may be the best there is."""
        mesh_dim = len(node.rows)
        limit = self._best_cost / SLACK
        factors = self._factors[mesh_dim]
        found: list[_Node] = []
        for row, options in self._open[mesh_dim]:
            kinds = self._kinds(node.kinds, row)
            if kinds is None:
                continue
            floor = self._to_come[mesh_dim]
            targets: list[Target] = []
            for at, target in enumerate(node.targets):
                option = options[at]
                further = target.further.get(option, _UNSEEN)
                if further is _UNSEEN:
                    further = self._moves[at].choose(target, mesh_dim, option, factors[at])
                    target.further[option] = further
                if further is None:
                    break
                floor += further.floor
                if floor > limit:
                    break
                targets.append(further)
            else:
                found.append(_Node(floor, (*node.rows, row), targets, kinds))
        if mesh_dim == self._innermost:
            self._leaves += len(found)
        return found

    def _kinds(self, kinds: tuple[int, ...], row: int) -> tuple[int, ...] | None:
        """Add a row's kinds of partial to those of each output; None if some clash."""
        if not kinds:
            return kinds
        found = tuple(
            [before | there.of[row] for before, there in zip(kinds, self._outputs, strict=True)]
        )
        clash = any(there.clash(now) for now, there in zip(found, self._outputs, strict=True))
        return None if clash else found

    def _precedes(self, rows: tuple[int, ...]) -> bool:
        """Say whether what begins with these rows comes before the best in row order."""
        return self._best is None or rows < self._best.rows

    def _take(self, leaf: _Node) -> None:
        """Make a leaf the best so far, if it is valid."""
        outputs, inputs = combine(self._problem, leaf.rows)
        if objection(self._problem, outputs, inputs) is None:
            costs = tuple([(target.floor,) for target in leaf.targets])
            self._best = Candidate(leaf.rows, outputs, inputs, costs)
            self._best_cost = self._best.cost


def _floor(node: _Node) -> float:
    return node.floor
