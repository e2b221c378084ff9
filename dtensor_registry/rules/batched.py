"""A rule for ops that do the same to each element of one dim: what `vmap` makes of an op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import REPLICATE, ShardingPlaceholder
from dtensor_registry.rules.signature import Entry, RuleOf, Seat, Signature, seated, seats
from dtensor_registry.rules.sizes import differ, is_one


@dataclass(frozen=True, slots=True)
class Batched:
    """The rule of an op with one batch dim; build it with `batched`.

    It has one row: the batch dim is cut wherever there is one. An input whose batch dim has
    size 1 while another input's is larger is broadcast, so it stays whole.

    Attributes:
        ins: where each tensor argument has its batch dim; None: it has none, and stays whole.
        outs: the same of each output.
        signature: of the op that it is bound to, if any; no part of its value.
    """

    ins: tuple[int | None, ...]
    outs: tuple[int | None, ...]
    signature: Signature | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for dim in (*self.ins, *self.outs):
            if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int)):
                raise InvalidContributionError(f"{self}: {dim!r} is neither a dim nor None")
        if any(dim is not None and dim < 0 for dim in self.outs):
            raise InvalidContributionError(
                f"{self}: a rule does not know how many dims an output has; count from 0"
            )
        if all(dim is None for dim in self.ins) or all(dim is None for dim in self.outs):
            raise InvalidContributionError(f"{self}: no input, or no output, has a batch dim")

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Entry]]:
        """Return the row for one call.

        Raises:
            ValueError: if the tensors of the call do not have such a batch dim.
        """
        places = seats(args, kwargs, self.signature)
        tensors = [seat for seat in places if seat.operand is not None]
        if self.signature is None and len(tensors) != len(self.ins):
            raise ValueError(
                f"{self} is for {len(self.ins)} tensors, but {op} was called with {len(tensors)}"
            )
        dims = {seat.name: dim for seat in tensors if (dim := self._dim(op, seat)) is not None}
        batches = [(s, s.tensor.shape[dims[s.name]]) for s in tensors if s.name in dims]
        _check_agreement(self, op, batches)
        wide = {seat.name for seat, size in batches if not is_one(size)}
        if not batches:
            return []  # all tensors that have a batch dim were left out
        outputs: list[Entry] = [
            REPLICATE if dim is None else ShardingPlaceholder(dim) for dim in self.outs
        ]
        cut = {n: ShardingPlaceholder(d) for n, d in dims.items() if n in wide or not wide}
        return [seated(outputs, places, cut)]

    def _dim(self, op: Any, seat: Seat) -> int | None:
        """Find the batch dim of one tensor of a call."""
        dim = None if seat.operand is None else self.ins[seat.operand]
        if dim is None:
            return None
        rank = len(seat.tensor.shape)
        if not -rank <= dim < rank:
            raise ValueError(
                f"{self}: {op} was called with {seat.name} of shape {tuple(seat.tensor.shape)},"
                f" which has no dim {dim}"
            )
        return dim % rank

    def bound(self, signature: Signature, rule_of: RuleOf) -> Batched:
        """Bind it to an op, of whose tensor arguments some may be left out or be lists.

        Raises:
            InvalidContributionError: if the op has another number of them, or of outputs.
        """
        if len(signature.operands) != len(self.ins) or signature.outputs != len(self.outs):
            raise InvalidContributionError(
                f"{self} is for {len(self.ins)} tensors and {len(self.outs)} outputs, but"
                f" {signature} takes {len(signature.operands)}"
                f" ({', '.join(signature.operands) or 'none'}) and returns {signature.outputs}"
            )
        return replace(self, signature=signature)

    def __str__(self) -> str:
        return f"batched(ins={list(self.ins)}, outs={list(self.outs)})"


def batched(*, ins: Sequence[int | None], outs: Sequence[int | None]) -> Batched:
    """Build the rule of an op that does the same to each element of one dim.

    Args:
        ins: for each tensor argument the dim, counted from the front or, below 0, from the
            end; None for one that all elements share.
        outs: for each output the dim, counted from the front; None for one that is the same
            whatever the batch.

    Raises:
        InvalidContributionError: for anything that is no dim, or if nothing is batched.

    >>> from dtensor_registry.placements import show_placements
    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> x, w = TensorMeta((8, 4), (4, 1), None), TensorMeta((4,), (1,), None)
    >>> for row in batched(ins=[0, None], outs=[0])(None, (x, w), {}): print(show_placements(row))
    S?(0), S?(0), R
    """
    return Batched(tuple(ins), tuple(outs))


def _check_agreement(rule: Batched, op: Any, batches: Sequence[tuple[Seat, Any]]) -> None:
    first, size = next(((s, n) for s, n in batches if not is_one(n)), (None, 1))
    for seat, other in batches:
        if first is not None and differ(size, other):
            raise ValueError(
                f"{rule}: {op} was called with batches of {size} in {first.name} and of {other} in"
                f" {seat.name}"
            )
