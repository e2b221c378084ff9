"""One call read against an equation: which letter each dim of each tensor is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dtensor_registry.errors import NotationError
from dtensor_registry.rules.notation.axes import (
    UNNAMED,
    Axes,
    Axis,
    place_of,
    show_axes,
    show_equation,
)
from dtensor_registry.rules.signature import Seat

Key: TypeAlias = tuple[str, int]
"""A dim by name: a letter and 0, or a group and which of its dims, counted back from -1."""


@dataclass(frozen=True, slots=True)
class Call:
    """An equation beside the tensors of one call.

    Attributes:
        op: what was called, for messages.
        inputs: of the equation.
        outputs: of the equation.
        seats: the tensors of the call.
    """

    op: str
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    seats: tuple[Seat, ...]

    def axes(self, seat: Seat) -> tuple[Axis, ...]:
        """Find what the equation says of a tensor: nothing, of one that stays whole."""
        return () if seat.operand is None else self.inputs[seat.operand] or ()

    def dims(self, seat: Seat) -> list[Key | Axis]:
        """List what each dim of a tensor is; factors and dims of size 1 have no key."""
        return _dims(self.axes(seat), dict(self._groups(seat)))

    def output_dims(self, axes: Axes) -> list[Key | Axis]:
        """List what each dim of an output is; a group has as many dims as its longest input's."""
        return _dims(axes or (), self._longest())

    def named_dims(self) -> list[Key]:
        """List all dims that have a key, in the order in which the equation names them."""
        longest = self._longest()
        dims = (dim for axes in self.inputs for dim in _dims(axes or (), longest))
        return list(dict.fromkeys(dim for dim in dims if isinstance(dim, tuple)))

    def error(self, number: int, element: int, problem: str, advice: str = "") -> NotationError:
        """Make an error that points at an element of an input, and says what was called."""
        tensors = ", ".join(f"{seat.name} {tuple(seat.tensor.shape)}" for seat in self.seats)
        said = f"{self.op} was called with {tensors or 'no tensors'}."
        return NotationError(
            show_equation(self.inputs, self.outputs),
            place_of(self.inputs, number, element),
            problem,
            f"{said}\n  {advice}" if advice else said,
        )

    def _longest(self) -> dict[str, int]:
        longest: dict[str, int] = {}
        for seat in self.seats:
            for name, count in self._groups(seat):
                longest[name] = max(longest.get(name, 0), count)
        return longest

    def _groups(self, seat: Seat) -> Iterator[tuple[str, int]]:
        axes = self.axes(seat)
        for axis in axes:
            if axis.is_group:
                yield axis.letters[0], len(seat.tensor.shape) - len(axes) + 1


def _dims(axes: tuple[Axis, ...], groups: Mapping[str, int]) -> list[Key | Axis]:
    found: list[Key | Axis] = []
    for axis in axes:
        if axis.is_group:
            (name,) = axis.letters
            found += ((name, index) for index in range(-groups.get(name, 0), 0))
        elif len(axis.letters) == 1:
            found.append((axis.letters[0], 0))
        else:
            found.append(axis)
    return found


def check_ranks(call: Call) -> None:
    """Check that each tensor has as many dims as the equation says.

    Raises:
        NotationError: if one has not.
    """
    for seat in call.seats:
        if seat.operand is None or call.inputs[seat.operand] is None:
            continue
        axes = call.axes(seat)
        has_group = any(axis.is_group for axis in axes)
        rank, least = len(seat.tensor.shape), len(axes) - has_group
        if rank == least or (has_group and rank > least):
            continue
        says = f"{'at least ' if has_group else ''}{_count(least)}"
        problem = f"'{show_axes(axes)}' is {says}, but {seat.name} has {_count(rank)}"
        advice = ""
        if rank > least:
            wanted = show_axes((Axis((UNNAMED,), True), *axes))
            advice = f'For any number of leading dims write "{wanted}" there.'
        raise call.error(seat.operand, 0, problem, advice)


def _count(dims: int) -> str:
    return "1 dim" if dims == 1 else f"{dims} dims"
