"""A rule for ops that reduce over some dims of one tensor: sum, mean, amax, logsumexp, ...

On one mesh dim there are three ways to spread such an op over ranks:

- cut a dim that is kept; it stands further to the front in the output if dims before it go.
- cut a dim that is reduced: each rank reduces its part, and the result is partial, if the
  reduction of reductions is the reduction of all. A mean is not, since parts may differ in size.
- a partial input, if the op may be exchanged with what makes it one.

Source: commutativity and associativity of the reduction; linearity of sum and mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import Partial, ShardingPlaceholder
from dtensor_registry.rules.dtypes import is_bool, is_inexact
from dtensor_registry.rules.metadata import is_tensor
from dtensor_registry.rules.signature import Entry, RuleOf, Signature, seated, seats

Where: TypeAlias = int | str | None
"""An argument by position or by name; None: there is no such argument."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one reduction allows.

    Attributes:
        cut: the partial that is left when a reduced dim is cut, or None.
        through: the partials that pass.
        empty_is_all: whether an empty list of dims means all of them, rather than none.
    """

    cut: str | None = None
    through: tuple[str, ...] = ()
    empty_is_all: bool = True


# torch keeps truth values that are or-ed as sums, and those that are and-ed as products.
_KINDS: Mapping[str | None, _Kind] = {
    "all": _Kind("product", ("product",), empty_is_all=False),
    "any": _Kind("sum", ("sum",), empty_is_all=False),
    "max": _Kind("max", ("max",)),
    "mean": _Kind(None, ("sum", "avg")),
    "min": _Kind("min", ("min",)),
    "product": _Kind("product", ("product",)),
    "sum": _Kind("sum", ("sum", "avg")),
    None: _Kind(),
}


@dataclass(frozen=True, slots=True)
class Reduction:
    """The rule of an op that reduces one tensor over dims; build it with `reduction`.

    Rows come in this order: one per dim of the input, then one per kind of partial input.

    - `all` and `any` take a partial input only if it holds truth values, the others only if it
      does not. Integers have no `P(avg)`: an integer average is rounded.
    - If the call asks for a result of an integer dtype, elements are rounded before they are
      reduced, so that only partials of integers pass.

    Attributes:
        dims: the argument that says over which dims.
        keepdim: the argument that says whether they stay, with size 1.
        kind: of the reduction; None: one whose results cannot be reduced further.
        partials: whether a partial input may pass.
        outputs: how many tensors the op returns, all reduced alike.
        signature: of the op that it is bound to, if any; no part of its value.
    """

    dims: Where
    keepdim: Where
    kind: str | None
    partials: bool = True
    outputs: int = 1
    signature: Signature | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            known = ", ".join(repr(kind) for kind in _KINDS)
            raise InvalidContributionError(f"{self}: a reduction is one of {known}")

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Entry]]:
        """Return the rows for one call.

        Raises:
            ValueError: if the call has no tensor, several, or a dim that is none of its.
            InvalidContributionError: if an argument has to be found by name before the rule is
                bound.
        """
        places = seats(args, kwargs, self.signature)
        tensors = [seat for seat in places if seat.output is None]
        if len(tensors) != 1:
            raise ValueError(f"{self} is for one tensor, but {op} was called with {len(tensors)}")
        (only,) = tensors
        kind = _KINDS[self.kind]
        rank = len(only.tensor.shape)
        reduced = self._reduced(op, rank, self._argument(self.dims, args, kwargs))
        keeps = bool(self._argument(self.keepdim, args, kwargs))
        rows = []
        for dim in range(rank):
            output: Entry
            if dim not in reduced:
                gone = 0 if keeps else sum(other < dim for other in reduced)
                output = ShardingPlaceholder(dim - gone)
            elif kind.cut is not None:
                output = Partial(kind.cut)
            else:
                continue
            rows.append(
                seated([output] * self.outputs, places, {only.name: ShardingPlaceholder(dim)})
            )
        for reduce_op in kind.through if self.partials else ():
            if self._passes(reduce_op, only.tensor.dtype, [*args, *kwargs.values()]):
                entry = Partial(reduce_op)
                rows.append(seated([entry] * self.outputs, places, {only.name: entry}))
        return rows

    def _reduced(self, op: Any, rank: int, dims: Any) -> set[int]:
        if dims is None or (dims in ([], ()) and _KINDS[self.kind].empty_is_all):
            return set(range(rank))
        listed = dims if isinstance(dims, (list, tuple)) else [dims]
        if rank == 0:
            return set()  # torch lets dim 0 and -1 stand for a number
        for dim in listed:
            if not -rank <= dim < rank:
                raise ValueError(f"{self}: {op} reduces dim {dim} of a tensor with {rank} dims")
        return {dim % rank for dim in listed}

    def _argument(self, where: Where, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if where is None:
            return None
        if isinstance(where, int):
            return args[where] if where < len(args) else None
        if self.signature is not None:
            return self.signature.argument(where, args, kwargs)
        if where in kwargs:
            return kwargs[where]
        raise InvalidContributionError(
            f"{self} was asked for rows before it was bound to an op, so it does not know where"
            f" argument {where!r} stands; use it as the rule of a strategy that is installed"
        )

    def _passes(self, reduce_op: str, dtype: Any, arguments: Sequence[Any]) -> bool:
        holds_truth = is_bool(dtype)
        if holds_truth != (self.kind in ("all", "any")):
            return False
        if reduce_op == "avg" and not is_inexact(dtype):
            return False
        rounds = any(_is_dtype(a) and not is_inexact(a) for a in arguments)
        return not (rounds and is_inexact(dtype))

    def bound(self, signature: Signature, rule_of: RuleOf) -> Reduction:
        """Bind it to an op.

        Raises:
            InvalidContributionError: if the op takes several tensors, returns another number, or
                lacks an argument.
        """
        if len(signature.operands) != 1 or signature.outputs != self.outputs:
            raise InvalidContributionError(
                f"{self} is for one tensor and {self.outputs} output(s), but {signature} takes"
                f" {len(signature.operands)} and returns {signature.outputs}"
            )
        for where in (self.dims, self.keepdim):
            if isinstance(where, str) and signature.parameter(where) is None:
                raise InvalidContributionError(f"{self}: {signature} has no argument {where!r}")
        return replace(self, signature=signature)

    def __str__(self) -> str:
        said = [repr(self.dims), repr(self.keepdim), repr(self.kind)]
        if not self.partials:
            said.append("partials=False")
        if self.outputs != 1:
            said.append(f"outputs={self.outputs}")
        return f"reduction({', '.join(said)})"


def reduction(
    dims: Where, keepdim: Where, kind: str | None, *, partials: bool = True, outputs: int = 1
) -> Reduction:
    """Build the rule of an op that reduces one tensor over some of its dims.

    Args:
        dims: the argument that says over which dims, by name, or by position counted from 0. In
            a call it holds a number, a list, or None for all; an empty list means all as well,
            under `any` and `all` none. If the op has no such argument, None: it reduces all.
        keepdim: the argument that says whether reduced dims stay; None if there is none, and
            they go.
        kind: `"sum"`, `"mean"`, `"max"`, `"min"`, `"product"`, `"any"`, `"all"`; or None for a
            reduction that must see all elements at once, such as a norm, or one with indices.
        partials: whether a partial input may pass. Switch it off for an op that does more than
            reduce: one that counts, or leaves elements out.
        outputs: how many tensors the op returns, all reduced alike.

    Raises:
        InvalidContributionError: for another kind.

    >>> from dtensor_registry.placements import show_placements
    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> x = TensorMeta((8, 4), (4, 1), None)
    >>> for row in reduction(1, 2, "sum")(None, (x, [0]), {}): print(show_placements(row))
    P(sum), S?(0)
    S?(0), S?(1)
    P(sum), P(sum)
    P(avg), P(avg)
    """
    return Reduction(dims, keepdim, kind, partials, outputs)


def _is_dtype(value: object) -> bool:
    return hasattr(value, "is_floating_point") and not is_tensor(value)
