"""A rule for ops that give back what they are given: copies, clones, tags, hooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import REDUCE_OPS, Partial, ShardingPlaceholder
from dtensor_registry.rules.dtypes import is_bool, is_complex, is_inexact
from dtensor_registry.rules.metadata import count_outputs
from dtensor_registry.rules.signature import Entry, RuleOf, Signature, seated, seats

_OF_NUMBERS = ("sum", "avg", "product")
_OF_ORDERED = (*_OF_NUMBERS, "min", "max")
_OF_TRUTH = ("sum", "product", "min", "max", "band", "bor")
_OF_INTEGERS = (*_OF_TRUTH, "bxor")  # an integer average is rounded, at each mesh dim anew


@dataclass(frozen=True, slots=True)
class Passthrough:
    """The rule of an op whose outputs hold what its one tensor holds; build it with `passthrough`.

    Rows come in this order: one per dim, then one per kind of partial that the dtype can have.

    Source: what a placement says of a tensor it says of a copy; nothing else is used.

    Attributes:
        partials: the reductions that pass.
        signature: of the op that it is bound to, if any; no part of its value.
    """

    partials: tuple[str, ...] = REDUCE_OPS
    signature: Signature | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        unknown = [reduce_op for reduce_op in self.partials if reduce_op not in REDUCE_OPS]
        if unknown:
            raise InvalidContributionError(
                f"passthrough(partials=...): {unknown[0]!r} is none of {', '.join(REDUCE_OPS)}"
            )

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Entry]]:
        """Return the rows for one call.

        Raises:
            ValueError: unless the call has exactly one tensor, beside those written to.
        """
        places = seats(args, kwargs, self.signature)
        tensors = [seat for seat in places if seat.output is None]
        if len(tensors) != 1:
            listed = ", ".join(seat.name for seat in tensors) or "none"
            raise ValueError(
                f"{self} is for one tensor, but {op} was called with {len(tensors)}: {listed}"
            )
        (only,) = tensors
        passing: list[Entry] = [ShardingPlaceholder(dim) for dim in range(len(only.tensor.shape))]
        passing += map(Partial, _kinds(only.tensor.dtype, self.partials))
        outputs = count_outputs(op) if self.signature is None else self.signature.outputs
        return [seated([entry] * outputs, places, {only.name: entry}) for entry in passing]

    def bound(self, signature: Signature, rule_of: RuleOf) -> Passthrough:
        """Bind it to an op.

        Raises:
            InvalidContributionError: unless the op takes exactly one tensor.
        """
        if len(signature.operands) != 1:
            raise InvalidContributionError(
                f"{self} is for one tensor, but {signature} takes {len(signature.operands)}"
            )
        return replace(self, signature=signature)

    def __str__(self) -> str:
        kinds = "" if self.partials == REDUCE_OPS else f"partials={list(self.partials)}"
        return f"passthrough({kinds})"


def passthrough(*, partials: Iterable[str] = REDUCE_OPS) -> Passthrough:
    """Build the rule of an op that changes no element: any placement of its tensor passes.

    Args:
        partials: the reductions that pass. An op that does change elements keeps the shards if
            it does so one by one, and perhaps some of the partials: `["sum", "avg"]` if it is
            linear, `[]` if it is nothing of the kind. For these see `pointwise`, too.

    Raises:
        InvalidContributionError: for a reduction that there is not.

    >>> from dtensor_registry.placements import show_placements
    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> x = TensorMeta((8, 4), (4, 1), None)
    >>> for row in passthrough(partials=["sum"])(None, (x,), {}): print(show_placements(row))
    S?(0), S?(0)
    S?(1), S?(1)
    P(sum), P(sum)
    """
    given = set(partials)
    known = [reduce_op for reduce_op in REDUCE_OPS if reduce_op in given]
    return Passthrough((*known, *sorted(given.difference(known))))


def _kinds(dtype: Any, wanted: Iterable[str]) -> list[str]:
    """List the reductions that tensors of a dtype can be partial by."""
    if is_bool(dtype):
        able: tuple[str, ...] = _OF_TRUTH
    elif is_complex(dtype):
        able = _OF_NUMBERS
    elif is_inexact(dtype):
        able = _OF_ORDERED
    else:
        able = _OF_INTEGERS
    return [reduce_op for reduce_op in wanted if reduce_op in able]
