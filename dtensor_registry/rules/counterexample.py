"""The smallest call that shows what a correction is for: torch, left alone, gets it wrong.

A counterexample is data of the strategy that mends it (`SingleDimStrategy.shows`), so that a test,
a page of documentation and `doctor` all speak of the same call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import Placements, ShardingPlaceholder, parse_placements

_ARROW = "<-"


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor of a counterexample.

    Attributes:
        dtype: without `torch.`.
        first: what rank 0 holds of a partial tensor, else the whole tensor. A number stands for
            four elements of it, a list for its elements, a tuple for a shape that is filled with
            1, 2, 3, ...
        second: what all other ranks hold of a partial tensor; None: as rank 0.

    >>> print(Held("uint8", 200, 100)), print(Held("float64", (3, 2)))
    uint8 200 and 100
    float64[3,2]
    (None, None)
    """

    dtype: str
    first: Any
    second: Any = None

    def __str__(self) -> str:
        if isinstance(self.first, tuple):
            return f"{self.dtype}[{','.join(map(str, self.first))}]"
        return f"{self.dtype} {self.first}" + ("" if self.second is None else f" and {self.second}")


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A call for which torch, left alone, gives another result than one process does.

    Attributes:
        row: how the tensors of the call are placed on one mesh dim, in the order of the schema:
            `"S(0), R"`; or a whole row that is wrong, `"P(max) <- P(max), R"`.
        args: positional arguments; `Held` stands for a tensor, `"torch.int64"` for a dtype.
        kwargs: keyword arguments, as pairs.
        op: the op, of those of the strategy; empty: each of them.
        because: what goes wrong, where the strategy's rule does not say it itself.
        raises: torch gives no wrong result, but raises, on some rank at least.
        hangs: torch never gives a result: nobody can try whether it still is so.
        ranks: of the mesh.
        since: the first torch, of those that were tried, that is wrong so.
        until: the last.

    >>> wrong = Counterexample("S(0), S(0)", (Held("float64", (3,)), Held("float64", (3,)), 1))
    >>> print(wrong)
    float64[3], float64[3], 1
    """

    row: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    op: str = ""
    because: str = ""
    raises: bool = False
    hangs: bool = False
    ranks: int = 2
    since: str = "2.13.0"
    until: str = "2.15.0"

    def __post_init__(self) -> None:
        tensors = sum(isinstance(value, Held) for value in self.values)
        if tensors != len(self.inputs):
            raise InvalidContributionError(
                f"Counterexample({self.row!r}): {len(self.inputs)} placement(s) for {tensors}"
                " tensor(s); write one for each, in the order of the schema"
            )

    @property
    def inputs(self) -> Placements:
        """The placement of each tensor."""
        read = parse_placements(self.row.rpartition(_ARROW)[2].strip())
        return tuple(p for p in read if not isinstance(p, ShardingPlaceholder))

    @property
    def values(self) -> tuple[Any, ...]:
        """All arguments."""
        return (*self.args, *(value for _, value in self.kwargs))

    def is_of(self, op: str) -> bool:
        """Say whether it is a call of an op of its strategy."""
        return self.op in ("", op)

    def __str__(self) -> str:
        named = (f"{name}={_shown(value)}" for name, value in self.kwargs)
        return ", ".join([*map(_shown, self.args), *named])


def _shown(value: Any) -> str:
    return str(value).removeprefix("torch.")
