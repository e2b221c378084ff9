"""Placements of one tensor on one mesh dim: the values, one parser and one printer.

The host computes with these small frozen values and meets torch's own placement
classes only at the border (`dtensor_registry.torch_runtime.conversion`). That keeps every
search and every rule template pure: they run, and are tested, without torch.

The notation, used in messages, in tests and on the command line:

    R            replicated: every rank of the mesh dim holds the whole tensor
    S(0)         sharded on tensor dim 0
    S?(0)        a placeholder: sharded on tensor dim 0, in whatever kind the inputs have
    S(2)/8       a placeholder for dim 2, which holds 8 groups; no rank gets a part of one
    _S(0, 2)     strided shard of tensor dim 0 with split factor 2
    P(sum)       partial: the tensor is the sum of what the ranks hold

>>> [str(p) for p in parse_placements("S(0), R")]
['S(0)', 'R']
>>> show_placements((Partial("max"), REPLICATE))
'P(max), R'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dtensor_registry.errors import PlacementSyntaxError

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
"""Reductions that a partial placement may name. Source: torch.distributed.ReduceOp."""


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank of the mesh dim holds the whole tensor."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Shard:
    """The tensor is cut along `tensor_dim`, one piece per rank of the mesh dim."""

    tensor_dim: int

    def __str__(self) -> str:
        return f"S({self.tensor_dim})"


@dataclass(frozen=True, slots=True)
class StridedShard:
    """Cut along `tensor_dim` after the dim was first split into `split_factor` groups."""

    tensor_dim: int
    split_factor: int

    def __str__(self) -> str:
        return f"_S({self.tensor_dim}, {self.split_factor})"


@dataclass(frozen=True, slots=True)
class Partial:
    """The tensor is the `reduce_op`-reduction of what the ranks of the mesh dim hold.

    `native` carries torch's own object for partials that know more than their
    reduction (a masked embedding, a norm). Two such partials are equal only when
    torch says so, and no rule can name one.
    """

    reduce_op: str = "sum"
    native: object = None

    def __str__(self) -> str:
        return f"P({self.reduce_op})" if self.native is None else f"P({self.native})"


@dataclass(frozen=True, slots=True)
class ShardingPlaceholder:
    """Sharded on tensor dim `dim`, in whatever kind of sharding the inputs have.

    A rule says "these dims are cut together"; how each is cut (plainly, or strided)
    is filled in when the rule meets real inputs.

    Attributes:
        dim: the tensor dim.
        groups: how many groups of equal size the dim holds, none of which may be cut, as where
            it is made of factors; the row is then right only where the number of ranks that
            share the dim, over the whole mesh, divides this. None if any element may be cut off.

    Raises:
        ValueError: if there is no group.

    >>> print(ShardingPlaceholder(2), ShardingPlaceholder(2, groups=8))
    S?(2) S(2)/8
    """

    dim: int
    groups: int | None = None

    def __post_init__(self) -> None:
        if self.groups is not None and self.groups < 1:
            raise ValueError(f"dim {self.dim} cannot hold {self.groups} groups: give one or more")

    def __str__(self) -> str:
        return f"S?({self.dim})" if self.groups is None else f"S({self.dim})/{self.groups}"


Placement: TypeAlias = Replicate | Shard | StridedShard | Partial
"""What a tensor can have on one mesh dim."""

Placements: TypeAlias = tuple[Placement, ...]
"""What a tensor has on a mesh: one placement per mesh dim, outermost first."""

REPLICATE = Replicate()

_PATTERN = re.compile(
    r"""\s*(?:
        (?P<replicate>R)
      | S\(\s*(?P<grouped>-?\d+)\s*\)\s*/\s*(?P<groups>\d+)
      | S\(\s*(?P<shard>-?\d+)\s*\)
      | S\?\(\s*(?P<placeholder>-?\d+)\s*\)
      | _S\(\s*(?P<strided>-?\d+)\s*,\s*(?P<factor>\d+)\s*\)
      | P(?:\(\s*(?P<reduce_op>[a-z]+)\s*\))?(?P<partial>)
    )\s*(?P<comma>,|$)""",
    re.VERBOSE,
)

_ENDINGS = ("", "R", "(0, 2)", "(0)", "0, 2)", "0)", ", 2)", ")", "2)", "S(0, 2)", "sum)", "2")
"""What may follow the beginning of a placement, enough of it for each beginning to be one."""


def is_shard(placement: object) -> bool:
    """Say whether a placement cuts a tensor dim, in any kind."""
    return isinstance(placement, (Shard, StridedShard, ShardingPlaceholder))


def cut_groups(
    placements: Placements, mesh_shape: Sequence[int], tensor_dim: int, groups: int
) -> str | None:
    """Say why ranks cannot share a dim without cutting a group of it, or None if they can.

    Args:
        placements: of the tensor, one per mesh dim.
        mesh_shape: ranks per mesh dim; all that cut the dim multiply.
        tensor_dim: the dim.
        groups: how many groups of equal size it holds.

    >>> cut_groups((Shard(2), Shard(2)), (2, 2), 2, groups=6)
    'dim 2 holds 6 groups, which 4 ranks cannot share evenly'
    >>> cut_groups((Shard(2), Shard(1)), (2, 2), 2, groups=6) is None
    True
    """
    ranks = 1
    for placement, count in zip(placements, mesh_shape, strict=True):
        if not isinstance(placement, (Shard, StridedShard)) or placement.tensor_dim != tensor_dim:
            continue
        ranks *= count
        held = f"dim {tensor_dim} holds {groups} groups, which {ranks} ranks cannot share evenly"
        if groups % ranks:
            return held
        if isinstance(placement, StridedShard) and groups % (ranks * placement.split_factor):
            return f"{held} in {placement.split_factor} strides"
    return None


def parse_placements(text: str) -> tuple[Placement | ShardingPlaceholder, ...]:
    """Read placements from the notation; `P` alone means `P(sum)`.

    Args:
        text: placements separated by commas, for example `"S(0), R"`.

    Raises:
        PlacementSyntaxError: with a caret under the first character that does not fit.

    >>> parse_placements("S(1),P")
    (Shard(tensor_dim=1), Partial(reduce_op='sum', native=None))
    """
    found: list[Placement | ShardingPlaceholder] = []
    position = 0
    while True:
        match = _PATTERN.match(text, position)
        if match is None:
            stop = _first_misfit(text, position)
            raise PlacementSyntaxError(text, stop, "expected R, S(0), _S(0, 2) or P(sum)")
        found.append(_placement_of(match, text))
        position = match.end()
        if match["comma"] != ",":
            return tuple(found)


def _first_misfit(text: str, start: int) -> int:
    """Find where a placement that begins at `start` stops being the beginning of one."""
    stop = start
    while stop < len(text) and any(
        _PATTERN.fullmatch(text[start : stop + 1] + ending) for ending in _ENDINGS
    ):
        stop += 1
    return stop


def _placement_of(match: re.Match[str], text: str) -> Placement | ShardingPlaceholder:
    if match["replicate"]:
        return REPLICATE
    if match["shard"] is not None:
        return Shard(int(match["shard"]))
    if match["grouped"] is not None:
        if int(match["groups"]) < 1:
            raise PlacementSyntaxError(text, match.start("groups"), "expected a positive number")
        return ShardingPlaceholder(int(match["grouped"]), int(match["groups"]))
    if match["placeholder"] is not None:
        return ShardingPlaceholder(int(match["placeholder"]))
    if match["strided"] is not None:
        return StridedShard(int(match["strided"]), int(match["factor"]))
    reduce_op = match["reduce_op"] or "sum"
    if reduce_op not in REDUCE_OPS:
        raise PlacementSyntaxError(
            text, match.start("reduce_op"), f"a reduction is one of {', '.join(REDUCE_OPS)}"
        )
    return Partial(reduce_op)


def show_placements(placements: Iterable[Placement | ShardingPlaceholder | None]) -> str:
    """Print placements in the notation; `None`, an output that is no tensor, prints as `-`.

    >>> show_placements([Shard(0), None])
    'S(0), -'
    """
    return ", ".join("-" if p is None else str(p) for p in placements)


def show_placed(placements: Iterable[object] | None) -> str:
    """Print the placements of one tensor on a mesh; `-` for one that is no tensor.

    >>> show_placed((Shard(0), REPLICATE)), show_placed(None)
    ('(S(0), R)', '-')
    """
    return "-" if placements is None else f"({', '.join(map(str, placements))})"


def show_choice(
    outputs: Iterable[Iterable[object] | None], inputs: Iterable[Iterable[object] | None]
) -> str:
    """Print what each output has on a mesh, and what each input must have for it.

    >>> show_choice([], [(REPLICATE,), (Shard(0),)])
    '() <- (R), (S(0))'
    """
    return show_sides(map(show_placed, outputs), map(show_placed, inputs))


def show_sides(outputs: Iterable[str], inputs: Iterable[str]) -> str:
    """Print a row or a choice, whose entries are printed already.

    >>> show_sides(["S(0)"], ["S(0)", "R"])
    'S(0) <- S(0), R'
    """
    return " <- ".join(", ".join(side) or "()" for side in (outputs, inputs))
