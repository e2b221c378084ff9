"""Do two runs of the same job have the same losses?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BAR = 1e-4
"""Largest relative difference of a loss that float32 sums in another order may cause."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The losses of the plain and of the sharded run, step by step.

    >>> Comparison((2.0, 1.0), (2.0, 1.5)).largest
    0.5
    """

    plain: tuple[float, ...]
    sharded: tuple[float, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        """Relative difference of every step that both runs took."""
        return tuple(abs(s - p) / abs(p) for p, s in zip(self.plain, self.sharded, strict=False))

    @property
    def largest(self) -> float:
        """The largest of the differences; infinite if a loss is no number."""
        return max((d if d == d else float("inf") for d in self.differences), default=0.0)

    @property
    def agrees(self) -> bool:
        """Whether both runs took the same steps, at least one, and stayed within the bar."""
        return 0 < len(self.plain) == len(self.sharded) and self.largest < BAR


def compare(plain: Sequence[float], sharded: Sequence[float]) -> Comparison:
    """Hold the losses of one run against those of another."""
    return Comparison(tuple(plain), tuple(sharded))
