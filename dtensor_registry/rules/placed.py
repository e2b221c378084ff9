"""One call as a correction sees it: sizes, and how each tensor is placed on the mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from dtensor_registry.placements import REPLICATE, Partial, Placements, Shard, StridedShard


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor of a call and where it is.

    Attributes:
        shape: its global shape.
        dtype: its dtype, as torch writes it.
        placements: one per mesh dim.
        mesh_shape: ranks per mesh dim.
        mutated: whether the op writes to it.
    """

    shape: tuple[int, ...]
    dtype: Any
    placements: Placements
    mesh_shape: tuple[int, ...]
    mutated: bool = False

    def cuts(self, tensor_dim: int | None = None) -> tuple[int, ...]:
        """List the mesh dims of several ranks that cut a dim of the tensor, or any dim.

        >>> from dtensor_registry.placements import parse_placements
        >>> PlacedTensor((4, 6), None, parse_placements("S(1), R"), (2, 2)).cuts()
        (0,)
        """
        return tuple(
            mesh_dim
            for mesh_dim, (placement, ranks) in enumerate(
                zip(self.placements, self.mesh_shape, strict=True)
            )
            if isinstance(placement, (Shard, StridedShard))
            and ranks > 1
            and tensor_dim in (None, placement.tensor_dim)
        )

    def partials(self, *linear: str) -> tuple[int, ...]:
        """List the mesh dims on which a reduction is pending.

        Args:
            linear: reductions that are not listed, such as `"sum"`.
        """
        return tuple(
            mesh_dim
            for mesh_dim, placement in enumerate(self.placements)
            if isinstance(placement, Partial)
            and (placement.native is not None or placement.reduce_op not in linear)
        )

    def ranks(self, *mesh_dims: int) -> int:
        """Count the ranks of some mesh dims.

        >>> PlacedTensor((4,), None, (REPLICATE,) * 3, (2, 4, 8)).ranks(0, 2)
        16
        """
        return prod(self.mesh_shape[mesh_dim] for mesh_dim in mesh_dims)

    def piece_sizes(self, tensor_dim: int) -> frozenset[int]:
        """Give the sizes that ranks have of one dim.

        Pieces of a strided cut that is uneven are not worked out; 0 stands for them.

        >>> from dtensor_registry.placements import parse_placements
        >>> sorted(PlacedTensor((5,), None, parse_placements("S(0)"), (4,)).piece_sizes(0))
        [0, 1, 2]
        """
        sizes = {self.shape[tensor_dim]}
        for mesh_dim in self.cuts(tensor_dim):
            placement, ranks = self.placements[mesh_dim], self.mesh_shape[mesh_dim]
            factor = placement.split_factor if isinstance(placement, StridedShard) else 1
            if factor > 1 and any(size % (ranks * factor) for size in sizes):
                return frozenset(sizes | {0})
            sizes = {
                max(min(-(-size // ranks), size - rank * -(-size // ranks)), 0)
                for size in sizes
                for rank in range(ranks)
            }
        return frozenset(sizes)

    @property
    def is_even(self) -> bool:
        """Whether all ranks hold pieces of one size."""
        return all(len(self.piece_sizes(dim)) == 1 for dim in range(len(self.shape)))

    def replicated(self, *mesh_dims: int) -> Placements:
        """Give the placements that it would have if it were whole on some mesh dims."""
        return tuple(
            REPLICATE if mesh_dim in mesh_dims else placement
            for mesh_dim, placement in enumerate(self.placements)
        )


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """One call of an op.

    Attributes:
        op: the op, as messages write it.
        tensors: its tensor arguments by name, `xs[0]` in a list.
        arguments: its other arguments by name, with the defaults of those that it leaves out.
    """

    op: str
    tensors: Mapping[str, PlacedTensor]
    arguments: Mapping[str, Any]
