"""One call read against an equation: which letter each dim of each tensor is."""

from __future__ import annotations

from collections.abc import Mapping
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

Dims: TypeAlias = list[Key | Axis]
"""What each dim of a tensor is; dims made of factors and dims of size 1 have no key."""


@dataclass(frozen=True, slots=True)
class MatchedCall:
    """An equation beside the tensors of one call; `match_call` makes it.

    Attributes:
        op: what was called, for messages.
        inputs: of the equation.
        outputs: of the equation.
        seats: the tensors of the call.
        dims: of each of these; none of one that stays whole.
        groups: how many dims each group has, where it has the most.
    """

    op: str
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    seats: tuple[Seat, ...]
    dims: tuple[Dims, ...]
    groups: Mapping[str, int]

    def axes(self, seat: Seat) -> tuple[Axis, ...]:
        """Find what the equation says of a tensor: nothing, of one that stays whole."""
        return _axes(self.inputs, seat)

    def output_dims(self) -> list[Dims | None]:
        """List the dims of each output; None for one that stays whole."""
        return [None if axes is None else _dims(axes, self.groups) for axes in self.outputs]

    def named_dims(self) -> list[Key]:
        """List all dims that have a key, in the order in which the equation names them.

        Outermost factors are among them: see `place_in`.
        """
        dims = (dim for axes in self.inputs for dim in _dims(axes or (), self.groups))
        keys = (_outermost(dim) if isinstance(dim, Axis) else dim for dim in dims)
        return list(dict.fromkeys(key for key in keys if key is not None))

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


def match_call(
    op: str, inputs: tuple[Axes, ...], outputs: tuple[Axes, ...], seats: tuple[Seat, ...]
) -> MatchedCall:
    """Read the tensors of a call against an equation.

    Raises:
        NotationError: if a tensor has more or fewer dims than the equation says.
    """
    dims: list[Dims] = []
    longest: dict[str, int] = {}
    for seat in seats:
        groups = {
            axis.letters[0]: len(seat.tensor.shape) - len(_axes(inputs, seat)) + 1
            for axis in _axes(inputs, seat)
            if axis.is_group
        }
        for name, count in groups.items():
            longest[name] = max(longest.get(name, 0), count)
        dims.append(_dims(_axes(inputs, seat), groups))
    call = MatchedCall(op, inputs, outputs, seats, tuple(dims), longest)
    _check_ranks(call)
    return call


def place_in(dims: Dims, key: Key) -> int | None:
    """Find the dim that is cut where a key is: its own, or one of which it is the outermost factor.

    >>> place_in([("b", 0), Axis(("h", "d"))], ("h", 0))
    1
    """
    for place, dim in enumerate(dims):
        if key == (_outermost(dim) if isinstance(dim, Axis) else dim):
            return place
    return None


def _outermost(axis: Axis) -> Key | None:
    return (axis.letters[0], 0) if axis.is_product else None


def _axes(inputs: tuple[Axes, ...], seat: Seat) -> tuple[Axis, ...]:
    return () if seat.operand is None else inputs[seat.operand] or ()


def _dims(axes: tuple[Axis, ...], groups: Mapping[str, int]) -> Dims:
    found: Dims = []
    for axis in axes:
        if axis.is_group:
            (name,) = axis.letters
            found += ((name, index) for index in range(-groups.get(name, 0), 0))
        elif len(axis.letters) == 1:
            found.append((axis.letters[0], 0))
        else:
            found.append(axis)
    return found


def _check_ranks(call: MatchedCall) -> None:
    for seat, dims in zip(call.seats, call.dims, strict=True):
        rank = len(seat.tensor.shape)
        if seat.operand is None or call.inputs[seat.operand] is None or rank == len(dims):
            continue
        axes = call.axes(seat)
        has_group = any(axis.is_group for axis in axes)
        least = len(axes) - has_group
        says = f"{'at least ' if has_group else ''}{_count(least)}"
        problem = f"'{show_axes(axes)}' is {says}, but {seat.name} has {_count(rank)}"
        advice = ""
        if rank > least:
            wanted = show_axes((Axis((UNNAMED,), True), *axes))
            advice = f'For any number of leading dims write "{wanted}" there.'
        raise call.error(seat.operand, 0, problem, advice)


def _count(dims: int) -> str:
    return "1 dim" if dims == 1 else f"{dims} dims"
