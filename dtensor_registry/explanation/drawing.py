"""How a tensor lies on a mesh, as a drawing: one box per rank, and in it the rank's piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from dtensor_registry.explanation import Explanation, Piece, TensorShown
from dtensor_registry.placements import show_placed

_BOX = 64.0
_GAP = 16.0
_LEFT = 76.0
_TOP = 22.0
_LEAST = 0.25
"""Share of the longer side that the shorter side of a whole tensor is drawn with at least."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the drawing, in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class RankBox:
    """One rank: its number, the whole tensor, and in it what the rank holds."""

    rank: int
    whole: Box
    piece: Box
    told: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text beside a row or above a column of the mesh."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class MeshDrawing:
    """One tensor on the mesh.

    Attributes:
        name: of the tensor.
        told: the same in words.
        note: what the drawing leaves out, or nothing.
        partial: whether what ranks hold is still to be reduced.
        width: in pixels.
        height: in pixels.
        labels: positions on the mesh dims.
        ranks: in row order.
    """

    name: str
    told: str
    note: str
    partial: bool
    width: float
    height: float
    labels: tuple[Label, ...]
    ranks: tuple[RankBox, ...]


def draw(explanation: Explanation) -> tuple[MeshDrawing, ...]:
    """Draw the inputs as they come, and the outputs."""
    tensors = (*explanation.inputs, *explanation.outputs)
    return tuple(_tensor(explanation, tensor) for tensor in tensors)


def _tensor(explanation: Explanation, tensor: TensorShown) -> MeshDrawing:
    columns = explanation.mesh_shape[-1]
    drawn = tensor.pieces[: len(tensor.pieces) // columns * columns or columns]
    down, across = _sides(tensor)
    width, height = _size(tensor.shape, down, across)
    ranks = tuple(
        _rank(piece, tensor.shape, down, across, width, height, columns) for piece in drawn
    )
    rows = -(-len(drawn) // columns)
    shape = ", ".join(map(str, tensor.shape))
    return MeshDrawing(
        name=tensor.name,
        told=f"{tensor.dtype}[{shape}] {show_placed(tensor.placements)}",
        note="; ".join(_notes(explanation, tensor, down, across)),
        partial=any(placement.startswith("P") for placement in tensor.placements),
        width=_LEFT + columns * (width + _GAP),
        height=_TOP + rows * (height + _GAP),
        labels=tuple(_labels(explanation, rows, columns, width, height)),
        ranks=ranks,
    )


def _sides(tensor: TensorShown) -> tuple[int | None, int | None]:
    """Choose the tensor dims to draw: those that are cut, and of others the last ones."""
    whole = {at for at, size in enumerate(tensor.shape)}
    cut = {at for piece in tensor.pieces for at in whole if piece.shape[at] != tensor.shape[at]}
    chosen = [*sorted(cut), *sorted(whole - cut, reverse=True)][:2]
    if len(chosen) < 2:
        return None, chosen[0] if chosen else None
    first, second = sorted(chosen)
    return first, second


def _size(shape: Sequence[int], down: int | None, across: int | None) -> tuple[float, float]:
    """Draw a whole tensor in its proportions, unless one side would vanish."""
    high = shape[down] if down is not None else 1
    wide = shape[across] if across is not None else 1
    longer = max(high, wide, 1)
    return (max(wide / longer, _LEAST) * _BOX, max(high / longer, _LEAST) * _BOX)


def _rank(
    piece: Piece,
    shape: Sequence[int],
    down: int | None,
    across: int | None,
    width: float,
    height: float,
    columns: int,
) -> RankBox:
    row, column = divmod(piece.rank, columns)
    x, y = _LEFT + column * (width + _GAP), _TOP + row * (height + _GAP)

    def along(tensor_dim: int | None, extent: float) -> tuple[float, float]:
        if tensor_dim is None or shape[tensor_dim] == 0:
            return 0.0, extent
        size = shape[tensor_dim]
        begin, length = piece.offset[tensor_dim], piece.shape[tensor_dim]
        return min(begin / size, 1.0) * extent, length / size * extent

    (left, wide), (top, high) = along(across, width), along(down, height)
    return RankBox(
        piece.rank,
        Box(x, y, width, height),
        Box(x + left, y + top, wide, high),
        f"rank {piece.rank} at {piece.coordinate}: {_slices(piece)}",
    )


def _slices(piece: Piece) -> str:
    cuts = [f"{o}:{o + s}" for o, s in zip(piece.offset, piece.shape, strict=True)]
    return f"[{', '.join(cuts)}]"


def _labels(
    explanation: Explanation, rows: int, columns: int, width: float, height: float
) -> list[Label]:
    names = explanation.mesh_dims
    numbered = names == tuple(map(str, range(len(names))))
    short = [f"dim {name}:" if numbered else name for name in names]
    found = [
        Label(_LEFT + at * (width + _GAP), _TOP - 8, f"{short[-1]} {at}" if at == 0 else str(at))
        for at in range(columns)
    ]
    outer = list(product(*map(range, explanation.mesh_shape[:-1])))[:rows]
    if explanation.mesh_shape[:-1]:
        found += [
            Label(
                0.0,
                _TOP + row * (height + _GAP) + height / 2 + 4,
                ", ".join(f"{n} {at}" for n, at in zip(short, place, strict=False)),
            )
            for row, place in enumerate(outer)
        ]
    return found


def _notes(
    explanation: Explanation, tensor: TensorShown, down: int | None, across: int | None
) -> list[str]:
    notes = []
    sides = [at for at in (down, across) if at is not None]
    if len(tensor.shape) > 2:
        notes.append(f"drawn: tensor dims {sides[0]} (down) and {sides[1]} (across)")
    if any(placement.startswith("P") for placement in tensor.placements):
        notes.append("hatched: each rank holds a part of a value that is still to be reduced")
    if any(placement.startswith("_S") for placement in tensor.placements):
        notes.append("a strided piece is drawn as if it were in one part")
    if len(tensor.pieces) < prod(explanation.mesh_shape):
        notes.append(f"the first {len(tensor.pieces)} of {prod(explanation.mesh_shape)} ranks")
    return notes
