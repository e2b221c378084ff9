"""From the text of an equation to its parts, with a caret where something does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dtensor_registry.errors import NotationError
from dtensor_registry.rules.notation.axes import UNNAMED, Axes, Axis

ADVICE = """\
An equation looks like "b... m k, b... k n -> b... m n". A tensor is its letters, one per dim;
  _ if it stays whole, () if it has no dims. Beside letters stand: "..." or "b..." for any number
  of dims, "(h d)" for a dim made of two, "1" for a dim of size 1."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter or group of an equation, and where it stands."""

    name: str
    position: int
    is_group: bool = False
    in_product: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """An equation that is well formed; what its letters mean is checked later.

    Attributes:
        inputs: the tensors before the arrow.
        outputs: those after it.
        marks: each letter and group of each tensor, inputs first.
    """

    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    marks: tuple[tuple[Mark, ...], ...]


def parse_equation(text: str) -> Parsed:
    """Read an equation.

    Raises:
        NotationError: with a caret under the first character that does not fit.

    >>> parse_equation("bmk, (h d) -> ()").inputs[1]
    (Axis(letters=('h', 'd'), is_group=False),)
    """
    arrow = text.find("->")
    if arrow < 0:
        raise _error(text, len(text), "expected '->' and the outputs")
    again = text.find("->", arrow + 2)
    if again >= 0:
        raise _error(text, again, "a second '->'")
    inputs = [_tensor(text, *span, is_input=True) for span in _spans(text, 0, arrow)]
    outputs = [_tensor(text, *span, is_input=False) for span in _spans(text, arrow + 2, len(text))]
    both = [*inputs, *outputs]
    _check_groups(text, [mark for _, marks in both for mark in marks])
    return Parsed(
        tuple(axes for axes, _ in inputs),
        tuple(axes for axes, _ in outputs),
        tuple(marks for _, marks in both),
    )


def _spans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield where each tensor of one side begins and ends."""
    for part in text[start:stop].split(","):
        yield start, start + len(part)
        start += len(part) + 1


def _tensor(text: str, start: int, stop: int, *, is_input: bool) -> tuple[Axes, tuple[Mark, ...]]:
    content = text[start:stop].strip()
    first = start + len(text[start:stop]) - len(text[start:stop].lstrip())
    if not content:
        problem = "expected a tensor: its letters, () for a scalar, _ for one that stays whole"
        raise _error(text, min(first, len(text)), problem)
    if content == "_":
        return None, ()
    if re.fullmatch(r"\(\s*\)", content):
        return (), ()
    axes: list[Axis] = []
    marks: list[Mark] = []
    position = first
    while position < first + len(content):
        if text[position].isspace():
            position += 1
            continue
        if text[position] == "1":
            axes.append(Axis(()))
            position += 1
        elif text[position] == "(":
            position, factors = _product(text, position, first + len(content))
            axes.append(Axis(tuple(mark.name for mark in factors)))
            marks += factors
        else:
            mark = _mark(text, position)
            if mark.is_group and is_input and any(axis.is_group for axis in axes):
                problem = "a second group of dims: where the first ends could not be told"
                raise _error(text, position, problem)
            axes.append(Axis((mark.name,), mark.is_group))
            marks.append(mark)
            position += len(str(axes[-1]))
    _check_once(text, marks)
    return tuple(axes), tuple(marks)


def _mark(text: str, position: int) -> Mark:
    character = text[position]
    if text.startswith(UNNAMED, position):
        return Mark(UNNAMED, position, is_group=True)
    if is_letter(character):
        return Mark(character, position, is_group=text.startswith(UNNAMED, position + 1))
    expected = {
        ".": "expected three dots, '...'",
        "_": "'_' stands for a whole tensor, so it stands alone",
        ")": "')' closes nothing",
    }.get(character, f"expected a letter, not {character!r}")
    raise _error(text, position, expected)


def _product(text: str, start: int, stop: int) -> tuple[int, list[Mark]]:
    """Read `(h d)` from its opening bracket on; return where it ends, and its factors."""
    factors: list[Mark] = []
    for position in range(start + 1, stop):
        character = text[position]
        if character == ")":
            if factors:
                marks = [Mark(f.name, f.position, in_product=len(factors) > 1) for f in factors]
                return position + 1, marks
            problem = "'()' is a scalar, so it stands alone; a dim of size 1 is '1'"
            raise _error(text, start, problem)
        if character.isspace():
            continue
        if not is_letter(character):
            raise _error(text, position, f"a factor is a letter, not {character!r}")
        factors.append(Mark(character, position))
    raise _error(text, start, "'(' is never closed")


def _check_once(text: str, marks: list[Mark]) -> None:
    seen: set[str] = set()
    for mark in marks:
        if mark.name in seen:
            problem = f"{mark.name!r} stands twice in one tensor: a diagonal has no sharding rule"
            raise _error(text, mark.position, problem)
        seen.add(mark.name)


def _check_groups(text: str, marks: list[Mark]) -> None:
    kinds: dict[str, bool] = {}
    for mark in marks:
        if kinds.setdefault(mark.name, mark.is_group) != mark.is_group:
            problem = f"{mark.name!r} is one dim in one place and '{mark.name}...' in another"
            raise _error(text, mark.position, problem)


def is_letter(character: str) -> bool:
    """Say whether a character can name a dim."""
    return character.isascii() and character.isalpha()


def _error(text: str, position: int, problem: str) -> NotationError:
    return NotationError(text, position, problem, ADVICE)
