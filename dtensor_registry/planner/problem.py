"""One question to the expansion: rows of a rule, the inputs of a call, and a mesh."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from dtensor_registry.placements import (
    Placement,
    Placements,
    Shard,
    StridedShard,
    show_choice,
    show_placements,
    show_sides,
)
from dtensor_registry.planner.topology import Topology

Row: TypeAlias = tuple[Placement | None, ...]
"""Placements on one mesh dim: outputs first, then inputs. None: an output that is no tensor."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One tensor that goes into an op.

    Attributes:
        shape: global shape, for example `(M, K)`.
        sources: the placements that it may come with; one at dispatch, several when a tool
            asks for all strategies at once.
        pinned: why it cannot be moved, or None: an argument that the op mutates must keep
            its placement, and torch never moves keyword tensors.
        nbytes: bytes of the whole tensor, item size times the product of its global shape.
        divisible: whether its numbers can be divided; those of integers and bools cannot.
        priced_by_torch: whether only torch can price its moves, for a reason that its
            placements do not show, see `dtensor_registry.costs.needs_torch`.
    """

    shape: tuple[int, ...]
    sources: tuple[Placements, ...]
    pinned: str | None = None
    nbytes: int = 0
    divisible: bool = True
    priced_by_torch: bool = False


@dataclass(frozen=True, slots=True)
class Grouped:
    """A dim whose elements stand in groups of equal size, none of which may be cut.

    Attributes:
        position: of the tensor in a row.
        tensor_dim: the dim.
        groups: how many there are.
    """

    position: int
    tensor_dim: int
    groups: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that decides an expansion.

    Attributes:
        topology: the mesh and its links.
        rows: on one mesh dim, filled and without repeats, see `fill_rows`.
        num_outputs: how many of each row's entries are outputs.
        inputs: the tensors, in row order.
        ties: `output -> input` for outputs that are the very tensor that came in.
        allow_uneven_sharding: keep an unshardable input that stays as it is.
        every_rank_has_some: refuse to cut an input so that a rank gets no element of it.
        grouped: dims of outputs and inputs that may be cut only between groups, each once; see
            `grouped_dims`.
    """

    topology: Topology
    rows: tuple[Row, ...]
    num_outputs: int
    inputs: tuple[TensorInput, ...]
    ties: tuple[tuple[int, int], ...] = ()
    allow_uneven_sharding: bool = False
    every_rank_has_some: bool = False
    grouped: tuple[Grouped, ...] = ()

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Ranks per mesh dim, outermost first."""
        return self.topology.mesh_shape

    def show_row(self, at: int) -> str:
        """Print a row, dims that hold groups with their number."""
        groups = {(dim.position, dim.tensor_dim): dim.groups for dim in self.grouped}
        shown: list[str] = []
        for position, placement in enumerate(self.rows[at]):
            held = None
            if isinstance(placement, (Shard, StridedShard)):
                held = groups.get((position, placement.tensor_dim))
            shown.append(show_placements([placement]) + (f"/{held}" if held else ""))
        return show_sides(shown[: self.num_outputs], shown[self.num_outputs :])


@dataclass(frozen=True, slots=True)
class Candidate:
    """One valid choice for the whole mesh.

    Attributes:
        rows: index of the row that was taken on each mesh dim.
        outputs: placements of each output; None for an output that is no tensor.
        inputs: placements that each input must have.
        costs: per input, the microseconds to bring it there from each of its sources.
    """

    rows: tuple[int, ...]
    outputs: tuple[Placements | None, ...]
    inputs: tuple[Placements, ...]
    costs: tuple[tuple[float, ...], ...] = field(compare=False)

    @property
    def cost(self) -> float:
        """Microseconds of communication, summed over inputs and sources as torch sums them."""
        total = 0.0
        for row in self.costs:
            for cost in row:
                total += cost
        return total

    def __str__(self) -> str:
        return f"{show_choice(self.outputs, self.inputs)}  {self.cost:.2f} us"


def combine(
    problem: Problem, rows: tuple[int, ...]
) -> tuple[tuple[Placements | None, ...], tuple[Placements, ...]]:
    """Put one row per mesh dim together to placements of each output and each input.

    Args:
        problem: the call.
        rows: index of the row on each mesh dim, outermost first.
    """
    tensors = tuple(zip(*(problem.rows[row] for row in rows), strict=True))
    outputs = tuple(None if None in tensor else tensor for tensor in tensors[: problem.num_outputs])
    return outputs, tensors[problem.num_outputs :]
