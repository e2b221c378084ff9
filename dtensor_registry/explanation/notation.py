"""The notation in which a call is asked for: tensors, other arguments, a choice.

f32[4096,1024]@S(0),R            a tensor: dtype, shape, a placement per mesh dim
[f32[8]@S(0), f32[8]@R]          a list of tensors; None may be in it
alpha=2                          an argument by name; values are Python literals
S(0),R; R,S(1) -> S(0),S(1)      a choice: inputs, then outputs, tensors apart by `;`
(S(0), S(1)) <- (S(0), R), (R, S(1))     the same, as choices print
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from dtensor_registry.errors import NotationError, PlacementSyntaxError
from dtensor_registry.mesh_sizes import read_number
from dtensor_registry.placements import (
    Placement,
    Placements,
    ShardingPlaceholder,
    parse_placements,
    show_placements,
)

_TENSOR = re.compile(r"\s*(?P<dtype>[a-z]\w*)\[(?P<shape>[\d\s,]*)\]\s*(?P<at>@)?")
_NAMED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*=(?!=)")
_TORCH = re.compile(r"torch\.\w+")
_TOO_LARGE = re.compile(r"\d{19,}")
_SKIPPED = re.compile(r"\s*\[(?:\s*None\s*,)*")

MOST_BYTES = 2**63
"""Torch counts the bytes of a tensor below this."""

_LARGEST = 16  # bytes of an element: complex128


@dataclass(frozen=True, slots=True)
class AskedTensor:
    """A tensor as asked for.

    Attributes:
        dtype: as written: `f32`, or torch's name.
        shape: of the whole tensor.
        placements: one per mesh dim; None: replicated.
    """

    dtype: str
    shape: tuple[int, ...]
    placements: Placements | None

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        at = "" if self.placements is None else f"@{show_placements(self.placements)}"
        return f"{self.dtype}[{shape}]{at}".replace(", ", ",")


@dataclass(frozen=True, slots=True)
class AskedChoice:
    """A choice as asked for; None for outputs or a tensor: whatever it is.

    Attributes:
        inputs: placements of each tensor input.
        outputs: placements of each output, or None.
    """

    inputs: tuple[Placements | None, ...]
    outputs: tuple[Placements | None, ...] | None


def is_tensor_text(text: str) -> bool:
    """Say whether a text is meant as a tensor or as a list of them.

    >>> is_tensor_text("f32[8]@R"), is_tensor_text("[None, f32[8]]"), is_tensor_text("trunc")
    (True, True, False)
    """
    begin = _SKIPPED.match(text)
    return _TENSOR.match(text, begin.end() if begin else 0) is not None


def parse_tensor(text: str) -> AskedTensor:
    """Read one tensor.

    Raises:
        NotationError: pointing at what does not fit.

    >>> str(parse_tensor("f32[4, 2]@S(0), R"))
    'f32[4,2]@S(0),R'
    """
    return _tensor(text, text, 0)


def parse_argument(text: str) -> tuple[str | None, Any]:
    """Read one argument: its name, or None, and its value.

    Raises:
        NotationError: for what is neither a tensor, a list of tensors, nor a literal.

    >>> parse_argument("alpha=2"), parse_argument("[1, 1]")
    (('alpha', 2), (None, [1, 1]))
    """
    named = _NAMED.match(text)
    start = named.end() if named else 0
    value = text[start:]
    name = named["name"] if named else None
    if is_tensor_text(value):
        if not value.lstrip().startswith("["):
            return name, _tensor(text, value, start)
        begin, end = text.index("[", start) + 1, text.rstrip().rfind("]")
        if end != len(text.rstrip()) - 1 or end < begin:
            raise NotationError(text, len(text.rstrip()), "a list of tensors ends with ]")
        return name, [
            None if part.strip() == "None" else _tensor(text, part, at)
            for at, part in _listed(text, begin, end)
        ]
    if _TORCH.fullmatch(value.strip()):
        return name, value.strip()
    try:
        return name, ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:  # all are ast's
        advice = "A tensor is written  f32[4096,1024]@S(0),R ; a text is quoted:  'trunc'"
        raise NotationError(text, start, "neither a tensor nor a literal", advice) from error


def parse_choice(text: str) -> AskedChoice:
    """Read a choice: `inputs -> outputs`, `outputs <- inputs`, or the inputs alone.

    Raises:
        NotationError: pointing at what does not fit.

    >>> parse_choice("S(0),R -> R,R") == parse_choice("(R, R) <- (S(0), R)")
    True
    """
    for arrow in ("->", "<-"):
        left, found, right = text.partition(arrow)
        if found:
            sides = (_side(text, left, 0), _side(text, right, len(left) + len(arrow)))
            inputs, outputs = sides if arrow == "->" else sides[::-1]
            return AskedChoice(inputs, outputs)
    return AskedChoice(_side(text, text, 0), None)


def _side(text: str, side: str, start: int) -> tuple[Placements | None, ...]:
    stripped = side.strip()
    if stripped in ("", "()"):
        return ()
    if stripped[0] not in "(-":
        return tuple(_placements(text, part, at) for at, part in _split(side, start, ";"))
    return tuple(_group(text, part, at) for at, part in _listed(text, start, start + len(side)))


def _group(text: str, part: str, at: int) -> Placements | None:
    """Read the placements of one tensor as they print: in parentheses, or `-` for no tensor."""
    stripped = part.strip()
    if stripped == "-":
        return None
    if not (stripped.startswith("(") and stripped.endswith(")")):
        raise NotationError(text, at, "the placements of a tensor are in parentheses here")
    return _placements(text, stripped[1:-1], at + part.index("(") + 1)


def _tensor(text: str, part: str, start: int) -> AskedTensor:
    match = _TENSOR.match(part)
    if match is None:
        raise NotationError(text, start, "a tensor is written  f32[4096,1024]@S(0),R")
    rest = part[match.end() :]
    if not match["at"]:
        if rest.strip():
            raise NotationError(text, start + match.end(), "expected @ and placements")
        placements = None
    else:
        placements = _placements(text, rest, start + match.end())
    sizes = [size.strip() for size in match["shape"].split(",")]
    if sizes == [""]:
        sizes = []
    if not all(re.fullmatch(r"\d+", size) for size in sizes):
        raise NotationError(text, start + match.start("shape"), "a shape is numbers and commas")
    shape = tuple(read_number(size, MOST_BYTES) for size in sizes)
    if prod(max(size, 1) for size in shape) * _LARGEST >= MOST_BYTES:
        raise NotationError(
            text, start + match.start("shape"), "a tensor has less than 2**63 bytes"
        )
    if placements is not None:
        placements = tuple(_within(p, shape, text, start + match.end()) for p in placements)
    return AskedTensor(match["dtype"], shape, placements)


def _placements(text: str, part: str, start: int) -> Placements:
    beyond = _TOO_LARGE.search(part)
    if beyond is not None:
        raise NotationError(text, start + beyond.start(), "a number beyond all that torch counts")
    try:
        found = parse_placements(part)
    except PlacementSyntaxError as error:
        raise NotationError(text, start + error.position, error.problem) from None
    for p in found:
        if isinstance(p, ShardingPlaceholder):
            problem = f"a tensor has S({p.dim}), not {p}"
            if p.groups is not None:
                problem += ": how many groups a dim holds is said by rules alone"
            raise NotationError(text, start, problem)
    return tuple(p for p in found if not isinstance(p, ShardingPlaceholder))


def _within(placement: Placement, shape: tuple[int, ...], text: str, at: int) -> Placement:
    """Count a tensor dim from the front, and hold it against the shape."""
    tensor_dim = getattr(placement, "tensor_dim", None)
    if tensor_dim is None:
        return placement
    if not -len(shape) <= tensor_dim < len(shape):
        raise NotationError(text, at, f"{placement} cuts a dim that shape {shape} has not")
    front: Any = type(placement)
    rest = [placement.split_factor] if hasattr(placement, "split_factor") else []
    counted: Placement = front(tensor_dim % len(shape), *rest)
    return counted


def _split(text: str, start: int, separator: str) -> Iterator[tuple[int, str]]:
    for part in text.split(separator):
        yield start, part
        start += len(part) + len(separator)


def _listed(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    """Split at commas that begin the next tensor of a list, not at those within one."""
    starts_one: Callable[[str], Any] = re.compile(r"\s*(?:\(|-|None|[a-z]\w*\[)").match
    depth, start = 0, begin
    for position in range(begin, end):
        character = text[position]
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0 and starts_one(text[position + 1 : end]):
            yield start, text[start:position]
            start = position + 1
    if text[start:end].strip():
        yield start, text[start:end]
