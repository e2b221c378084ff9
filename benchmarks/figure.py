"""One measured thing, beside its target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Side: TypeAlias = Literal["bare", "registry"]
BOTH: tuple[Side, Side] = ("bare", "registry")


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians of one thing measured.

    Attributes:
        what: the thing.
        mesh_ndim: mesh dims, 0 where it does not matter.
        bare: bare torch in `unit`s, or None where it is not measured.
        registry: the registry in `unit`s.
        runs: how many runs the medians are of.
        unit: `ms` or `us`.
    """

    what: str
    mesh_ndim: int
    bare: float | None
    registry: float
    runs: int
    unit: str = "ms"

    @property
    def times(self) -> float | None:
        """How many times as long bare torch takes."""
        return None if self.bare is None else self.bare / self.registry


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure shall reach.

    Attributes:
        faster: bare torch takes at least so many times as long.
        slower: the registry takes at most so many times as long as bare torch.
        at_most: the registry takes at most so many units.
    """

    faster: float | None = None
    slower: float | None = None
    at_most: float | None = None

    def reached(self, figure: Figure) -> bool:
        """Whether a figure keeps it."""
        times = figure.times or 0.0
        return (
            (self.faster is None or times >= self.faster)
            and (self.slower is None or times * self.slower >= 1)
            and (self.at_most is None or figure.registry <= self.at_most)
        )

    def __str__(self) -> str:
        if self.faster is not None:
            return f">= {self.faster:g}x faster"
        return f"<= {self.slower:g} of bare" if self.slower else f"<= {self.at_most:g}"


TARGETS: dict[tuple[str, int], Target] = {
    **{
        ("mm: whole decision", ndim): Target(faster=times)
        for ndim, times in ((1, 2), (2, 8), (3, 80), (4, 800))
    },
    **{
        ("mm: search alone", ndim): Target(at_most=limit)
        for ndim, limit in ((1, 0.08), (2, 0.2), (3, 0.8), (4, 3), (5, 10), (6, 40))
    },
    ("5 inputs, 12 rows: search alone", 4): Target(at_most=10),
    ("mm: hot dispatch", 2): Target(slower=1.02),
    ("add: hot dispatch", 2): Target(slower=1.02),
    ("install()", 0): Target(at_most=150),
    ("first step of the demo's model", 3): Target(slower=0.25),
}
"""By what and mesh dims."""


def table(figures: Iterable[Figure]) -> str:
    """Write figures one a line, targets and whether they are reached beside them."""
    head = ("what", "mesh", "bare", "registry", "", "times", "runs", "target", "")
    lines = [head]
    for figure in figures:
        target = TARGETS.get((figure.what, figure.mesh_ndim))
        lines.append(
            (
                figure.what,
                f"{figure.mesh_ndim}-D" if figure.mesh_ndim else "",
                "" if figure.bare is None else f"{figure.bare:.3f}",
                f"{figure.registry:.3f}",
                figure.unit,
                "" if figure.times is None else f"{figure.times:.2f}",
                str(figure.runs),
                "" if target is None else str(target),
                "" if target is None else "reached" if target.reached(figure) else "MISSED",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 2 <= at <= 6 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
