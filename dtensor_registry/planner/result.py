"""The answer of a search, which prints as its explanation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dtensor_registry.placements import show_placed
from dtensor_registry.planner.prices import itemise
from dtensor_registry.planner.problem import Candidate, Problem
from dtensor_registry.planner.redistribution import needs_torch


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The cheapest choice for a call, and what was looked at to find it.

    Attributes:
        candidate: what was chosen.
        problem: the call.
        kept: on each mesh dim, the rows that were looked at; the others cannot be taken, or
            do nothing that an earlier one does not.
        nodes: how many choices for the outermost mesh dims were followed further in.
        leaves: how many choices for the whole mesh were priced.
    """

    candidate: Candidate
    problem: Problem = field(repr=False)
    kept: tuple[tuple[int, ...], ...]
    nodes: int
    leaves: int

    @property
    def cost(self) -> float:
        """Microseconds of communication in all."""
        return self.candidate.cost

    def __str__(self) -> str:
        return "\n".join([str(self.candidate), *self._mesh_dims(), *self._inputs(), self._effort()])

    def _mesh_dims(self) -> Iterator[str]:
        for mesh_dim, ranks in enumerate(self.problem.mesh_shape):
            at = self.candidate.rows[mesh_dim]
            taken = self.problem.show_row(at)
            looked_at = f"{len(self.kept[mesh_dim])} of {len(self.problem.rows)} rows looked at"
            yield f"  mesh dim {mesh_dim}, {ranks} ranks: row {at}, {taken}; {looked_at}"

    def _inputs(self) -> Iterator[str]:
        topology = self.problem.topology
        for position, (tensor, target, (cost,)) in enumerate(
            zip(self.problem.inputs, self.candidate.inputs, self.candidate.costs, strict=True)
        ):
            source = tensor.sources[0]
            if source == target:
                yield f"  input {position}: {show_placed(source)} stays"
                continue
            move = f"  input {position}: {show_placed(source)} -> {show_placed(target)}"
            if tensor.priced_by_torch or needs_torch(source, target):
                yield f"{move}, {cost:.2f} us by torch's own estimate"
                continue
            yield f"{move}, {cost:.2f} us"
            for item in itemise(source, target, tensor.nbytes, topology):
                paid = f" of {item.nbytes:,.0f} bytes, {item.microseconds:.2f} us"
                yield f"    {item.step}: {item.collective}{paid if item.microseconds else ''}"

    def _effort(self) -> str:
        combinations = len(self.problem.rows) ** len(self.problem.mesh_shape)
        return f"  nodes: {self.nodes}, leaves: {self.leaves}, combinations: {combinations:,}"
