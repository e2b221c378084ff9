"""A rule for ops that treat every element alike: `out[i] = f(x[i], y[i], ...)`.

On one mesh dim there are four ways to spread such an op over ranks:

- cut one dim of the broadcast shape, on every input that has it. Shapes are aligned at
  their ends, and an input in which the dim is missing, or has size 1 while the others' is
  larger, is repeated along it, so it must be whole on every rank.
- `P(sum)` through a group of inputs in which `f` is jointly linear while the others are
  the same on every rank: `f(a + c, b + d) = f(a, b) + f(c, d)`.
- `P(avg)` through any part of such a group. With the rest of the group fixed `f` is affine
  in that part, and the mean of affine images is the image of the mean.
- `P(max)` and `P(min)` through an input in which `f` is monotone while all others are the same
  on every rank: `f(max(a, b)) = max(f(a), f(b))` if it never falls, and the minimum of both if it
  never rises. Addends of a maximum lie below it, of a minimum above: where `f` is defined only
  above some number, only a minimum passes.

Source: NumPy's general broadcasting rules, and the identities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import REPLICATE, Partial, Replicate, ShardingPlaceholder
from dtensor_registry.rules.dtypes import is_bool, is_complex, is_inexact, is_integer
from dtensor_registry.rules.metadata import tensor_inputs

Row: TypeAlias = list[Replicate | Partial | ShardingPlaceholder]

Place: TypeAlias = int | str
"""Where a tensor stands in a call: the index of a positional argument, or a keyword."""

DIRECTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "up": (("max", "max"), ("min", "min")),
    "down": (("min", "max"), ("max", "min")),
    "up above": (("min", "min"),),
    "down above": (("max", "min"),),
    "up below": (("max", "max"),),
}
"""How an op may be monotone: what the output is, and the input. `above`: where it is defined."""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The rule of a pointwise op; build it with `pointwise`.

    Rows come in this order: one per dim of the broadcast shape, then `P(sum)` for each
    group, then `P(avg)` for each part of each group, larger parts first, then `P(max)` and
    `P(min)` for each argument in which the op is monotone, then for several together.

    - A dim of size 1 is cut like any other if all inputs that have it have size 1.
    - A group passes `P(sum)` only if each of its arguments is a tensor, or the number 0: any
      other number is the same on every rank, so it would be added once per rank. `x + 1`
      reaches an op as `add.Tensor` with a number at the second tensor's place; the host gives it
      as nan, since torch's cache does not tell such numbers apart.
    - bool tensors pass no sum or average: a sum of bools is a logical or. Integer tensors pass
      no `P(avg)`: an integer average is rounded.
    - Complex tensors have no maximum, and integers and bools none in an op that wraps around, nor
      integers that are written to a tensor in whose dtype they may wrap.
    - Tensors given by keyword are operands like the others, but in no group.
    - An in-place op passes only what its first argument carries.

    Attributes:
        linear: groups of positional arguments in which the op is jointly linear.
        outputs: how many tensors the op returns.
        out: the keyword arguments that the op writes to, placed as the outputs are.
        monotone: positional arguments in which the op is monotone, and how: see `DIRECTIONS`.
        jointly: `max`, `min` or both, and the arguments through which they pass at once.
        wraps: whether the op may overflow on integers, so that their order is lost.

    Raises:
        InvalidContributionError: for groups that are no groups of positions, directions that
            are none, or no output.
    """

    linear: tuple[tuple[int, ...], ...] = ()
    outputs: int = 1
    out: tuple[str, ...] = ("out",)
    monotone: tuple[tuple[int, str], ...] = ()
    jointly: tuple[tuple[str, tuple[int, ...]], ...] = ()
    wraps: bool = False

    def __post_init__(self) -> None:
        for group in self.linear:
            if not group or not all(isinstance(place, int) and place >= 0 for place in group):
                raise InvalidContributionError(
                    f"pointwise(linear=...): {group} is no group of argument positions;"
                    " a group is one or more positions counted from 0, e.g. (0, 1)"
                )
        if self.outputs < 1:
            raise InvalidContributionError(
                f"pointwise(outputs={self.outputs}): a pointwise op has at least one output"
            )
        for place, direction in self.monotone:
            if not isinstance(place, int) or place < 0 or direction not in tuple(DIRECTIONS):
                raise InvalidContributionError(
                    f"pointwise(monotone={{{place!r}: {direction!r}}}): give positions counted"
                    f" from 0, each with one of {', '.join(map(repr, DIRECTIONS))}"
                )
        if not {reduce_op for reduce_op, _ in self.jointly} <= {"max", "min"}:
            raise InvalidContributionError(
                f"pointwise(jointly={dict(self.jointly)}): only 'max' and 'min' may pass jointly"
            )
        for kind, group in self.jointly:
            if not group or not all(isinstance(place, int) and place >= 0 for place in group):
                raise InvalidContributionError(
                    f"pointwise(jointly={{{kind!r}: {group}}}): {group} is no group of argument"
                    " positions; a group is one or more positions counted from 0, e.g. (0, 1)"
                )

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
        """Return the rows for one call."""
        arguments: list[tuple[Place, Any]] = [*enumerate(args), *kwargs.items()]
        tensors = [
            (place, tensor) for place, value in arguments for tensor in tensor_inputs((value,), {})
        ]
        shape = _broadcast([tensor.shape for place, tensor in tensors if place not in self.out])
        if any(_differs(tensor.shape, shape) for place, tensor in tensors if place in self.out):
            return []  # The op will resize its out tensor, which no placement survives.
        partial = dict.fromkeys((*_sums(self.linear, args), *_averages(self.linear, args)))
        return [
            *(self._cut(dim, shape, tensors) for dim in range(len(shape))),
            *(
                self._pass(reduce_op, places, tensors)
                for reduce_op, places in partial
                # What an op writes to keeps its placement, which is the output's.
                if 0 in places or not _is_in_place(op)
            ),
            *self._ordered(op, args, kwargs, tensors),
        ]

    def _cut(self, dim: int, shape: Sequence[Any], tensors: Sequence[tuple[Place, Any]]) -> Row:
        row: Row = [ShardingPlaceholder(dim)] * self.outputs
        is_one = _holds(shape[dim] == 1)
        for _, tensor in tensors:
            own = dim - len(shape) + len(tensor.shape)
            whole = own < 0 or (_holds(tensor.shape[own] == 1) and not is_one)
            row.append(REPLICATE if whole else ShardingPlaceholder(own))
        return row

    def _ordered(
        self,
        op: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[tuple[Place, Any]],
    ) -> Iterator[Row]:
        """Pass maxima and minima."""
        numbers = (isinstance(value, complex) for value in (*args, *kwargs.values()))
        if any(numbers) or any(is_complex(tensor.dtype) for _, tensor in tensors):
            return
        in_place = _is_in_place(op)
        written = [tensor.dtype for place, tensor in tensors if place in self.out]
        written += [tensor.dtype for _, tensor in tensors[:1] if in_place]
        if not all(_keeps_order(tensor.dtype, to) for to in written for _, tensor in tensors):
            return
        for place, direction in self.monotone:
            if not _carries(args, place, self._has_order):
                continue
            for output, entry in DIRECTIONS[direction]:
                if not in_place or (place == 0 and output == entry):
                    yield self._pass(output, (place,), tensors, entry)
        for reduce_op, places in self.jointly:
            if all(_carries(args, place, self._has_order) for place in places):
                yield self._pass(reduce_op, places, tensors)

    def _has_order(self, dtype: Any) -> bool:
        return bool(getattr(dtype, "is_floating_point", True)) or not self.wraps

    def _pass(
        self,
        reduce_op: str,
        places: Sequence[int],
        tensors: Sequence[tuple[Place, Any]],
        input_op: str = "",
    ) -> Row:
        partial, entry = Partial(reduce_op), Partial(input_op or reduce_op)
        row: Row = [partial] * self.outputs
        for place, _ in tensors:
            if place in self.out:
                row.append(partial)
            else:
                row.append(entry if place in places else REPLICATE)
        return row

    def __str__(self) -> str:
        said = []
        if self.linear:
            said.append(f"linear=[{', '.join(map(str, self.linear))}]")
        if self.monotone:
            said.append(f"monotone={dict(self.monotone)}")
        if self.jointly:
            said.append(f"jointly={dict(self.jointly)}")
        if self.wraps:
            said.append("wraps=True")
        if self.outputs != 1:
            said.append(f"outputs={self.outputs}")
        if self.out != ("out",):
            said.append(f"out={list(self.out)}")
        return f"pointwise({', '.join(said)})"


def pointwise(
    *,
    linear: Iterable[Iterable[int]] = (),
    monotone: Mapping[int, str] | None = None,
    jointly: Mapping[str, Iterable[int]] | None = None,
    wraps: bool = False,
    outputs: int = 1,
    out: Iterable[str] = ("out",),
) -> Pointwise:
    """Shard any dim of the broadcast shape; pass partials where the op is linear or monotone.

    Args:
        linear: groups of positional arguments, each group a tuple of their positions, in
            which the op is jointly linear while all others are fixed: add has `[(0, 1)]`,
            mul, linear on either side but not on both at once, `[(0,), (1,)]`, div `[(0,)]`,
            where `[(1, 2)]`. Non-tensor arguments count as positions too.
        monotone: positional arguments in which the op is monotone while all others are fixed, and
            how: exp has `{0: "up"}`, neg `{0: "down"}`, sqrt, which takes only what lies above 0,
            `{0: "up above"}`. What is not a number must stay none.
        jointly: arguments through which maxima, or minima, pass at once, as the elements of the
            maximum of two tensors do: `{"max": (0, 1)}`.
        wraps: say True if integers may overflow, so that order is lost: 127 + 1 in 8 bits.
        outputs: how many tensors the op returns, all of the broadcast shape.
        out: the keyword arguments that the op writes to, if it does not call them `out`.

    Raises:
        InvalidContributionError: if `linear` is no list of groups, `monotone` names no positions
            and directions, `jointly` no groups for `max` or `min`, or `outputs` is below 1.

    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> matrix, bias = TensorMeta((8, 4), (4, 1), None), TensorMeta((4,), (1,), None)
    >>> for row in pointwise()(None, (matrix, bias), {}): print(*row)
    S?(0) S?(0) R
    S?(1) S?(1) S?(0)
    """
    try:
        groups = tuple(sorted({tuple(sorted(set(group))) for group in linear}))
    except TypeError as problem:
        raise InvalidContributionError(
            f"pointwise(linear={linear!r}): give a list of groups of positions, e.g. [(0, 1)]"
        ) from problem
    try:
        ordered = tuple(sorted((monotone or {}).items()))
    except (AttributeError, TypeError) as problem:
        raise InvalidContributionError(
            f"pointwise(monotone={monotone!r}): give positions and directions, e.g. {{0: 'up'}}"
        ) from problem
    try:
        together = tuple((kind, tuple(places)) for kind, places in sorted((jointly or {}).items()))
    except (AttributeError, TypeError) as problem:
        raise InvalidContributionError(
            f"pointwise(jointly={jointly!r}): give a group of positions for 'max' or 'min',"
            " e.g. {'max': (0, 1)}"
        ) from problem
    return Pointwise(groups, outputs, tuple(out), ordered, together, wraps)


def _sums(
    linear: Iterable[Sequence[int]], args: Sequence[Any]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for group in linear:
        places = tuple(
            place for place in group if _carries(args, place, lambda dtype: not is_bool(dtype))
        )
        if places and all(place in places or _is_zero(args, place) for place in group):
            yield "sum", places


def _averages(
    linear: Iterable[Sequence[int]], args: Sequence[Any]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for group in linear:
        places = [place for place in group if _carries(args, place, is_inexact)]
        for size in range(len(places), 0, -1):
            for part in combinations(places, size):
                yield "avg", part


def _carries(args: Sequence[Any], place: int, can_reduce: Callable[[Any], bool]) -> bool:
    """Say whether an argument is a tensor, or a list of them, of a dtype that can be reduced."""
    tensors = tensor_inputs(args[place : place + 1], {})
    return bool(tensors) and all(can_reduce(tensor.dtype) for tensor in tensors)


def _keeps_order(dtype: Any, to: Any) -> bool:
    """Say whether numbers of one dtype keep their order in another: integers may wrap round."""
    if not (is_integer(dtype) and is_integer(to)) or dtype == to:
        return True
    if dtype.is_signed and not to.is_signed:
        return False
    return bool(to.itemsize >= dtype.itemsize + (to.is_signed and not dtype.is_signed))


def _is_in_place(op: Any) -> bool:
    # `aten.add_.Tensor`. Source: "Func: name" in torch's aten/src/ATen/native/README.md.
    return str(op).rpartition(".")[0].endswith("_")


def _is_zero(args: Sequence[Any], place: int) -> bool:
    value = args[place] if place < len(args) else None
    return isinstance(value, (int, float, complex)) and value == 0


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    rank = max(map(len, shapes), default=0)
    shape = []
    for from_end in range(-rank, 0):
        sizes = [shape[from_end] for shape in shapes if len(shape) >= -from_end]
        shape.append(next((size for size in sizes if not _holds(size == 1)), 1))
    return shape


def _differs(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(shape) != len(other) or any(
        _holds(a != b) for a, b in zip(shape, other, strict=True)
    )


def _holds(condition: Any) -> bool:
    """Say whether something holds of sizes; what cannot be known before run time does not.

    torch's own broadcasting, too, takes a symbolic size that is known only at run time to
    be larger than 1 and equal to its counterpart, and checks that at run time.
    """
    try:
        return bool(condition)
    except RuntimeError:
        return False
