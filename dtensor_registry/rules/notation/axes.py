"""The parts of an equation as values, and how they print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

UNNAMED = "..."
"""The name of the group of dims that is written as three dots alone."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One element of a tensor: a dim, a group of dims, a dim made of factors, or a dim of size 1.

    Attributes:
        letters: the name of the dim or of the group; several for factors, outermost first;
            none for a dim of size 1.
        is_group: whether it stands for any number of dims.

    >>> for axis in (Axis(("k",)), Axis(("b",), True), Axis(("h", "d")), Axis(())): print(axis)
    k
    b...
    (h d)
    1
    """

    letters: tuple[str, ...]
    is_group: bool = False

    @property
    def is_product(self) -> bool:
        """Whether it is one dim made of factors."""
        return len(self.letters) > 1

    def __str__(self) -> str:
        if not self.letters:
            return "1"
        if self.is_product:
            return f"({' '.join(self.letters)})"
        (name,) = self.letters
        return f"{name}..." if self.is_group and name != UNNAMED else name


Axes: TypeAlias = tuple[Axis, ...] | None
"""The dims of one tensor; None for one that stays whole, whatever its shape."""


def show_axes(axes: Axes) -> str:
    """Print one tensor of an equation.

    >>> show_axes((Axis(("b",), True), Axis(("k",)))), show_axes(()), show_axes(None)
    ('b... k', '()', '_')
    """
    if axes is None:
        return "_"
    return " ".join(map(str, axes)) or "()"


def show_equation(inputs: Iterable[Axes], outputs: Iterable[Axes]) -> str:
    """Print an equation canonically."""
    return " -> ".join(", ".join(map(show_axes, side)) for side in (inputs, outputs))


def names(axes: Axes) -> Iterator[str]:
    """List the letters of one tensor, factors included; a group counts as one."""
    for axis in axes or ():
        yield from axis.letters


def inner_factors(tensors: Iterable[Axes]) -> frozenset[str]:
    """List the letters that are somewhere a factor behind another.

    >>> sorted(inner_factors([(Axis(("h", "d")),), (Axis(("d", "e")),), None]))
    ['d', 'e']
    """
    return frozenset(
        letter for axes in tensors for axis in axes or () for letter in axis.letters[1:]
    )


def outer_factors(tensors: Iterable[Axes]) -> frozenset[str]:
    """List the letters that are somewhere the outermost factor of a dim."""
    return frozenset(axis.letters[0] for axes in tensors for axis in axes or () if axis.is_product)


def place_of(inputs: tuple[Axes, ...], number: int, element: int = 0) -> int:
    """Say where in the printed equation an input stands, or an element of it.

    >>> place_of(((Axis(("m",)), Axis(("k",))), (Axis(("h", "d")), Axis(("n",)))), 1, 1)
    11
    """
    before = sum(len(show_axes(axes)) + len(", ") for axes in inputs[:number])
    axes = inputs[number] or ()
    return before + sum(len(str(axis)) + len(" ") for axis in axes[:element])
