"""A mesh in text: `2x4`, or `dp=2,tp=4` where its dims have names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from dtensor_registry.errors import NotationError

_SIZE = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*=\s*)?(?P<size>\d+)\s*")

MOST_RANKS = 2**20
"""Ranks that are simulated at most."""


@dataclass(frozen=True, slots=True)
class MeshSizes:
    """Ranks on each mesh dim, and names of the dims where they have them."""

    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return prod(self.shape)

    def __str__(self) -> str:
        if self.names is None:
            return "x".join(map(str, self.shape))
        return ",".join(f"{n}={size}" for n, size in zip(self.names, self.shape, strict=True))


def parse_mesh(text: str) -> MeshSizes:
    """Read a mesh.

    Raises:
        NotationError: pointing at what does not fit.

    >>> parse_mesh("2x4").shape, parse_mesh("dp=2,tp=4").names
    ((2, 4), ('dp', 'tp'))
    """
    separator = "," if "=" in text else "x"
    sizes: list[int] = []
    names: list[str] = []
    position = 0
    for part in text.split(separator):
        match = _SIZE.fullmatch(part)
        if match is None or bool(match["name"]) != (separator == ","):
            raise NotationError(text, position, "a mesh is written  2x4  or  dp=2,tp=4")
        size = read_number(match["size"], MOST_RANKS)
        if size == 0:
            raise NotationError(text, position, "a mesh dim has one rank or more")
        sizes.append(size)
        names += [match["name"]] if match["name"] else []
        position += len(part) + 1
    if len(set(names)) != len(names):
        raise NotationError(text, 0, "two mesh dims have one name")
    if prod(sizes) > MOST_RANKS:
        raise NotationError(text, 0, f"a mesh has {MOST_RANKS:,} ranks at most")
    return MeshSizes(tuple(sizes), tuple(names) or None)


def read_number(digits: str, most: int) -> int:
    """Read a number; of one that is larger than `most`, no more than that it is.

    >>> read_number("8", 16), read_number("9" * 10_000, 16)
    (8, 17)
    """
    return int(digits) if len(digits) <= len(str(most)) else most + 1
