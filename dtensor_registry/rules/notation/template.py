"""A rule from an equation of dims: which dims of which tensors are one and the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dtensor_registry.errors import InvalidContributionError, NotationError
from dtensor_registry.placements import REPLICATE, Partial, ShardingPlaceholder
from dtensor_registry.rules.notation.agreement import agreed_sizes
from dtensor_registry.rules.notation.axes import (
    Axes,
    Axis,
    inner_factors,
    outer_factors,
    show_axes,
    show_equation,
)
from dtensor_registry.rules.notation.options import Size, show_mapping
from dtensor_registry.rules.notation.reading import Dims, Key, MatchedCall, match_call, place_in
from dtensor_registry.rules.signature import Entry, RuleOf, Signature, seated, seats
from dtensor_registry.rules.sizes import is_one


@dataclass(frozen=True, slots=True)
class Notation:
    """The rule of an op whose dims are those of an equation; build it with `notation`.

    There is one row for each dim that can be cut, in the order in which the equation names
    them, and the dims of a group in their own order.

    - A letter is cut in every tensor that has it. An input whose dim has size 1 while another
      input's is larger is broadcast, so it stays whole; so does one that lacks a dim of a group.
    - An output without the letter is partial if the letter is reduced. If it is not, the letter
      is never cut: that output needs all of it.
    - A dim made of factors may be cut between two elements of its outermost factor, so where
      the number of ranks divides the size of that factor: its entry says so, `S(2)/8`. The size
      must be known from the call, from another dim or from the other factors. A letter whose
      size is given is not cut as a factor, since on a piece it would have another; nor is one
      that is somewhere a factor behind another.
    - Each element of a list argument is what the argument is. A tensor that is there to be
      written to, such as the keyword `out`, is placed as its output is.

    Attributes:
        inputs: the dims of each input.
        outputs: the dims of each output.
        reduce: letters and groups that are reduced over, and how.
        fixed: letters and groups that are never cut.
        sizes: of letters, as numbers or as names of the op's arguments.
        signature: of the op that it is bound to, if any; no part of its value.
    """

    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    reduce: tuple[tuple[str, str], ...] = ()
    fixed: tuple[str, ...] = ()
    sizes: tuple[tuple[str, Size], ...] = ()
    signature: Signature | None = field(default=None, compare=False, repr=False)

    @property
    def equation(self) -> str:
        """The equation, printed canonically."""
        return show_equation(self.inputs, self.outputs)

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Entry]]:
        """Return the rows for one call.

        Raises:
            NotationError: if the tensors of the call do not fit the equation.
        """
        places = seats(args, kwargs, self.signature)
        tensors = tuple(seat for seat in places if seat.operand is not None)
        if self.signature is None:
            self._check_count(f"{op} was called with", [seat.name for seat in tensors])
        call = match_call(str(op), self.inputs, self.outputs, tensors)
        sizes = agreed_sizes(call, self.fixed, self._sizes(args, kwargs))
        output_dims = call.output_dims()
        rows = []
        for key in self._keys(call, sizes):
            outputs = self._outputs(output_dims, key, sizes)
            cut = _cut(call, key, sizes)
            if outputs is not None and cut:
                rows.append(seated(outputs, places, cut))
        return rows

    def bound(self, signature: Signature, rule_of: RuleOf) -> Notation:
        """Bind it to an op; the inputs of the equation are then its tensor arguments.

        Raises:
            NotationError: if the op has another number of tensor arguments, or of outputs.
            InvalidContributionError: if it lacks an argument that `sizes` names.
        """
        self._check_count(f"{signature} takes", signature.operands)
        if len(self.outputs) != signature.outputs:
            problem = (
                f"the equation has {_count(len(self.outputs), 'output')}, but {signature.op}"
                f" returns {_count(signature.outputs, 'tensor')}"
            )
            raise NotationError(self.equation, self.equation.index("->") + 3, problem)
        for letter, size in self.sizes:
            if isinstance(size, str) and signature.parameter(size) is None:
                raise InvalidContributionError(
                    f"{self}: the size of {letter!r} is said to be argument {size!r}, which"
                    f" {signature} does not have"
                )
        return replace(self, signature=signature)

    def _check_count(self, taken_by: str, tensors: Sequence[str]) -> None:
        """Check that there are as many tensors as inputs of the equation."""
        if len(tensors) == len(self.inputs):
            return
        problem = (
            f"the equation has {_count(len(self.inputs), 'input')}, but {taken_by}"
            f" {_count(len(tensors), 'tensor')}: {', '.join(tensors) or 'none'}"
        )
        kept = self.inputs[: len(tensors)]
        position = len(", ".join(map(show_axes, kept)))
        missing: list[Axes] = [None] * (len(tensors) - len(kept))
        wanted = show_equation((*kept, *missing), self.outputs)
        advice = f'One for each, "_" for a tensor that stays whole:  "{wanted}"'
        raise NotationError(self.equation, position, problem, advice)

    def _keys(self, call: MatchedCall, sizes: Mapping[str, int]) -> list[Key]:
        tensors = (*self.inputs, *self.outputs)
        given = {letter for letter, _ in self.sizes}
        whole = {o for o in outer_factors(tensors) if o in given or sizes.get(o, 0) < 1}
        whole |= inner_factors(tensors).union(self.fixed)
        return [key for key in call.named_dims() if key[0] not in whole]

    def _outputs(
        self, listed: Sequence[Dims | None], key: Key, sizes: Mapping[str, int]
    ) -> list[Entry] | None:
        """Place every output where a dim is cut, or return None if one has no placement then."""
        reductions = dict(self.reduce)
        found: list[Entry] = []
        for dims in listed:
            place = None if dims is None else place_in(dims, key)
            if dims is None:
                found.append(REPLICATE)
            elif place is not None:
                found.append(_entry(dims, place, sizes))
            elif key[0] in reductions:
                found.append(Partial(reductions[key[0]]))
            else:
                return None
        return found

    def _sizes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
        found = {}
        for letter, size in self.sizes:
            value: Any = size
            if isinstance(size, str):
                known = self.signature
                value = kwargs.get(size) if known is None else known.argument(size, args, kwargs)
            if isinstance(value, int):
                found[letter] = value
        return found

    def __str__(self) -> str:
        said = [f'"{self.equation}"']
        if self.reduce and all(reduce_op == "sum" for _, reduce_op in self.reduce):
            said.append(f'reduce="{" ".join(name for name, _ in self.reduce)}"')
        elif self.reduce:
            said.append(f"reduce={show_mapping(self.reduce)}")
        if self.fixed:
            said.append(f'fixed="{" ".join(self.fixed)}"')
        if self.sizes:
            said.append(f"sizes={show_mapping(self.sizes)}")
        return f"notation({', '.join(said)})"


def _entry(dims: Dims, place: int, sizes: Mapping[str, int]) -> ShardingPlaceholder:
    """Cut a dim: anywhere, or between the elements of its outermost factor."""
    dim = dims[place]
    return ShardingPlaceholder(place, sizes[dim.letters[0]] if isinstance(dim, Axis) else None)


def _cut(call: MatchedCall, key: Key, sizes: Mapping[str, int]) -> dict[str, ShardingPlaceholder]:
    """Find the tensors that are cut with a dim, by name, and where."""
    having = {
        seat.name: (_entry(dims, place, sizes), seat)
        for seat, dims in zip(call.seats, call.dims, strict=True)
        if (place := place_in(dims, key)) is not None
    }
    wide = {
        name: (entry, seat)
        for name, (entry, seat) in having.items()
        if not is_one(seat.tensor.shape[entry.dim])
    }
    # Where every size is 1 nothing is broadcast: all are cut, into one piece that has it.
    return {name: entry for name, (entry, _) in (wide or having).items()}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
