"""Random moves of one tensor, drawn from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest

from dtensor_registry.placements import REPLICATE, Partial, Placement, Placements, Shard

SIZES = (0, 1, 2, 3, 5, 7, 8, 64, 1000, 4096)
PARTIALS: tuple[Placement, ...] = tuple(Partial(kind) for kind in ("sum", "avg", "max", "min"))


@dataclass(frozen=True)
class Draw:
    """A source of random meshes, shapes and placements."""

    rng: random.Random

    def mesh_shape(self) -> tuple[int, ...]:
        return tuple(self.rng.randint(1, 8) for _ in range(self.rng.randint(1, 4)))

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 3)))

    def nbytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * self.rng.choice((1, 2, 4, 8))

    def placement(self, rank: int) -> Placement:
        kind = self.rng.random()
        if kind < 0.35:
            return REPLICATE
        return Shard(self.rng.randrange(rank)) if kind < 0.75 else self.rng.choice(PARTIALS)

    def placements(self, rank: int, mesh_shape: tuple[int, ...]) -> Placements:
        return tuple(self.placement(rank) for _ in mesh_shape)

    def target(self, rank: int, source: Placements) -> Placements:
        """Draw a target that keeps about a third of the source and is seldom impossible."""
        drawn: list[Placement] = []
        for before in source:
            after = before if self.rng.random() < 0.35 else self.placement(rank)
            if isinstance(after, Partial) and before != REPLICATE and self.rng.random() < 0.8:
                after = before
            drawn.append(after)
        return tuple(drawn)


@pytest.fixture
def draw() -> Draw:
    return Draw(random.Random(20240229))
