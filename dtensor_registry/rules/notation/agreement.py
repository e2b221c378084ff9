"""Whether the sizes of a call agree with its equation: one letter, one size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from dtensor_registry.rules.notation.axes import Axis
from dtensor_registry.rules.notation.reading import Key, MatchedCall
from dtensor_registry.rules.sizes import differ, is_one


@dataclass(frozen=True, slots=True)
class _Dim:
    """One dim of one tensor of a call.

    Attributes:
        what: its key, or the element of the equation that has none.
        size: of the dim.
        tensor: name of the tensor.
        number: of the equation's input.
        element: of that input.
    """

    what: Key | Axis
    size: Any
    tensor: str
    number: int
    element: int


def agreed_sizes(
    call: MatchedCall, fixed: tuple[str, ...], given: Mapping[str, int]
) -> Mapping[str, int]:
    """Check that a letter has one size, broadcasting aside, and that factors multiply to theirs.

    The sizes of a letter in `fixed` are nobody's business: such a dim is never cut.

    Args:
        call: whose ranks agree with its equation.
        fixed: letters and groups.
        given: sizes of letters that are known otherwise.

    Returns:
        The size of each letter that is known: from a dim of its own, given, or what the other
        factors of a dim leave for it.

    Raises:
        NotationError: at the first dim that does not agree with what came before it.
    """
    known: dict[Key, tuple[Any, str]] = {(name, 0): (n, "sizes") for name, n in given.items()}
    dims = list(_listed(call))
    for dim in dims:
        if isinstance(dim.what, Axis) or dim.what[0] in fixed:
            continue
        size, where = known.get(dim.what, (1, ""))
        if differ(size, dim.size):
            name = dim.what[0]
            problem = f"{name!r} is {dim.size} in {dim.tensor}, but {size} in {where}"
            advice = f'If it need not agree, and is never to be cut, add fixed="{name}".'
            raise call.error(dim.number, dim.element, problem, advice)
        if is_one(size):
            known[dim.what] = (dim.size, dim.tensor)
    sizes = {
        name: size
        for (name, index), (size, _) in known.items()
        if index == 0 and isinstance(size, int)
    }
    _solve(dims, sizes, fixed, given)
    for dim in dims:
        if isinstance(dim.what, Axis):
            _check_element(call, dim, dim.what, sizes)
    return sizes


def _solve(
    dims: list[_Dim], sizes: dict[str, int], fixed: tuple[str, ...], given: Mapping[str, int]
) -> None:
    """Add the size of each letter that is the only unknown factor of a dim."""
    products = [
        (dim.what.letters, dim.size)
        for dim in dims
        if isinstance(dim.what, Axis) and dim.what.is_product and isinstance(dim.size, int)
    ]
    for _ in products:  # one that is solved may help another, each at most once
        for letters, size in products:
            unknown = [letter for letter in letters if letter not in sizes]
            others = [letter for letter in letters if letter in sizes]
            # A dim of size 1 may be one that is broadcast, of a letter that is larger here.
            if len(unknown) != 1 or any(sizes[o] == 1 and o not in given for o in others):
                continue
            product = prod(sizes[letter] for letter in others)
            if unknown[0] not in fixed and product and size % product == 0:
                sizes[unknown[0]] = size // product


def _check_element(call: MatchedCall, dim: _Dim, axis: Axis, sizes: Mapping[str, int]) -> None:
    """Check a dim made of factors, or of size 1; factors of unknown size divide it."""
    if not isinstance(dim.size, int):
        return
    factors = {name: sizes[name] for name in axis.letters if name in sizes}
    product = prod(factors.values())
    is_whole = len(factors) == len(axis.letters)
    if dim.size == product or (not is_whole and product and dim.size % product == 0):
        return
    told = ", ".join(f"{name} = {size}" for name, size in factors.items())
    problem = f"dim of size {dim.size} in {dim.tensor} is not '{axis}'"
    problem += f" with {told}" if told else ""
    raise call.error(dim.number, dim.element, problem)


def _listed(call: MatchedCall) -> Iterator[_Dim]:
    for seat, dims in zip(call.seats, call.dims, strict=True):
        if seat.operand is None:
            continue
        group = len(seat.tensor.shape) - len(call.axes(seat)) + 1
        elements = [
            element
            for element, axis in enumerate(call.axes(seat))
            for _ in range(group if axis.is_group else 1)
        ]
        for what, size, element in zip(dims, seat.tensor.shape, elements, strict=False):
            yield _Dim(what, size, seat.name, seat.operand, element)
