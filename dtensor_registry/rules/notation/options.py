"""The options beside an equation: what is reduced, what is never cut, what sizes factors have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dtensor_registry.errors import NotationError
from dtensor_registry.placements import REDUCE_OPS
from dtensor_registry.rules.notation.axes import UNNAMED, Axes, names
from dtensor_registry.rules.notation.parse import is_letter

Size: TypeAlias = int | str
"""A number, or the name of the op's argument that holds it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One letter or group in an option, what is said of it, and where that is written."""

    name: str
    value: Size
    shown: str
    position: int
    value_position: int

    def error(self, problem: str, *, at_value: bool = False) -> NotationError:
        """Make an error that points here."""
        return NotationError(
            self.shown, self.value_position if at_value else self.position, problem
        )


def read_option(option: str, given: str | Mapping[str, Size], value: Size) -> list[Item]:
    """Read an option that lists letters, or maps them to something.

    Args:
        option: its name.
        given: `"k b ..."`, or `{"k": "max"}`.
        value: what a list says of each of its letters.

    Raises:
        NotationError: for something that is no letter, or a letter that stands there twice.

    >>> [(item.name, item.value) for item in read_option("reduce", {"k": "max"}, "sum")]
    [('k', 'max')]
    """
    items = list(
        _mapped(option, given) if isinstance(given, Mapping) else _listed(option, given, value)
    )
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            raise item.error(f"{item.name!r} stands twice")
        seen.add(item.name)
    return items


def _listed(option: str, given: str, value: Size) -> Iterator[Item]:
    shown = f'{option}="{given}"'
    offset = len(option) + len('="')
    position = 0
    while position < len(given):
        if given[position].isspace():
            position += 1
            continue
        name, length = _name(given, position, shown, offset)
        yield Item(name, value, shown, offset + position, offset + position)
        position += length


def _mapped(option: str, given: Mapping[str, Size]) -> Iterator[Item]:
    shown = f"{option}={show_mapping(given.items())}"
    position = len(option) + len("={")
    for key, value in given.items():
        name, length = _name(key, 0, shown, position + 1)
        if length != len(key):
            raise NotationError(shown, position + 1 + length, "expected one letter")
        at_value = position + len(f'"{key}": ') + isinstance(value, str)
        yield Item(name, value, shown, position + 1, at_value)
        position += len(show_mapping([(key, value)])) - len("{}") + len(", ")


def _name(text: str, position: int, shown: str, offset: int) -> tuple[str, int]:
    """Read one letter or group; return its name and how long it is."""
    if text.startswith(UNNAMED, position):
        return UNNAMED, len(UNNAMED)
    name = text[position : position + 1]
    if not is_letter(name):
        raise NotationError(
            shown, offset + position, f"expected a letter of the equation, not {name!r}"
        )
    dots = len(UNNAMED) if text.startswith(UNNAMED, position + 1) else 0
    return name, 1 + dots


def show_mapping(items: Iterable[tuple[str, Size]]) -> str:
    """Print a mapping as an author types it.

    >>> print(show_mapping([("h", 8), ("d", "head_dim")]))
    {"h": 8, "d": "head_dim"}
    """
    parts = (
        f'"{key}": ' + (f'"{value}"' if isinstance(value, str) else str(value))
        for key, value in items
    )
    return f"{{{', '.join(parts)}}}"


def check_reduce(item: Item, inputs: Iterable[Axes], outputs: Iterable[Axes]) -> None:
    """Check that a letter can be reduced over.

    Raises:
        NotationError: if no input has it, every output has it, or the reduction is unknown.
    """
    if not any(item.name in names(axes) for axes in inputs):
        raise item.error(f"no input has {item.name!r}")
    if all(axes is None or item.name in names(axes) for axes in outputs):
        raise item.error(f"every output has {item.name!r}, so nothing is reduced over it")
    if item.value not in REDUCE_OPS:
        problem = f"a reduction is one of {', '.join(REDUCE_OPS)}"
        raise item.error(problem, at_value=True)


def check_size(item: Item, letters: Iterable[str]) -> None:
    """Check that a letter can have a size.

    Raises:
        NotationError: if it is no single dim of the equation, or the size is none.
    """
    if item.name not in letters:
        raise item.error(f"the equation has no dim {item.name!r}")
    value = item.value
    is_size = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not is_size and not (isinstance(value, str) and value.isidentifier()):
        problem = "a size is a positive number, or the name of the op's argument that holds it"
        raise item.error(problem, at_value=True)
