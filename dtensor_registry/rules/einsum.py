"""A rule from an einsum equation: every product of tensors with sums over some of the dims.

On one mesh dim there are two ways to spread such an op over ranks:

- cut one letter. Every tensor that has the letter is sharded on it, the others are whole.
  If the letter is summed over, each rank holds one term of the sum: `P(sum)`.
- linearity. The op is linear in each operand as long as the others are the same on every
  rank, so one operand may be a sum, or an average, whose terms the ranks hold.

Two partial operands are no way: the sum of products is not the product of sums.

Source: a sum may be split into sums over parts of its index range, and
`f(u + v, b) = f(u, b) + f(v, b)` for a bilinear `f`; nothing more is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

from dtensor_registry.errors import NotationError
from dtensor_registry.placements import REPLICATE, Partial, Replicate, ShardingPlaceholder
from dtensor_registry.rules.dtypes import is_inexact
from dtensor_registry.rules.metadata import is_tensor, tensor_inputs
from dtensor_registry.rules.sizes import is_one

Letters: TypeAlias = tuple[str, ...]
"""The dims of one tensor, one letter each."""

Row: TypeAlias = list[Replicate | Partial | ShardingPlaceholder]


_ADVICE = (
    "An equation looks like 'mk,kn->mn': the letters of each operand's dims, '->', and"
    " those of the output."
)


@dataclass(frozen=True, slots=True)
class Einsum:
    """The rule of an op that computes `equation`; build it with `einsum`.

    Rows come in this order: one per letter, letters in order of first appearance; then for
    each operand in turn its `P(sum)` and its `P(avg)` row.

    - A letter shards every operand that has it. An operand whose dim has size 1 while
      another operand's is larger is broadcast, so it stays whole.
    - An integer operand has no `P(avg)` row: an integer average is rounded, and rounding
      does not pass through a product.
    - A tensor given as the keyword `out` is placed as the output is.

    Attributes:
        operands: the letters of each operand.
        output: the letters of the output.
        linearity: whether the linearity rows are among the rows.
    """

    operands: tuple[Letters, ...]
    output: Letters
    linearity: bool = True

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
        """Return the rows for one call.

        Raises:
            ValueError: if the tensors of the call do not have the ranks of the equation.
        """
        operands = {name: value for name, value in kwargs.items() if name != "out"}
        tensors = tensor_inputs(args, operands)
        self._check_ranks(op, tensors)
        rows = [self._cut(letter, tensors) for letter in self._letters()]
        if self.linearity:
            rows.extend(self._linear(tensors))
        if not is_tensor(kwargs.get("out")):
            return rows
        # Keywords come in the order in which the caller wrote them.
        earlier = dict(takewhile(lambda item: item[0] != "out", kwargs.items()))
        place = 1 + len(tensor_inputs(args, earlier))
        return [[*row[:place], row[0], *row[place:]] for row in rows]

    def __str__(self) -> str:
        return f"einsum({self._equation()}{'' if self.linearity else ', linearity=False'})"

    def _equation(self) -> str:
        return f"{','.join(map(''.join, self.operands))}->{''.join(self.output)}"

    def _letters(self) -> Letters:
        return tuple(dict.fromkeys(letter for operand in self.operands for letter in operand))

    def _check_ranks(self, op: Any, tensors: tuple[Any, ...]) -> None:
        if len(tensors) != len(self.operands):
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise ValueError(
                f"{self} has {len(self.operands)} operands, but {op} was called with"
                f" {len(tensors)} tensors of shapes {shapes or 'none'}"
            )
        for number, (letters, tensor) in enumerate(zip(self.operands, tensors, strict=True), 1):
            if len(letters) != len(tensor.shape):
                raise ValueError(
                    f"{self}: operand {number} is '{''.join(letters)}' and has {len(letters)} dims,"
                    f" but {op} was called with shape {tuple(tensor.shape)} there"
                )

    def _cut(self, letter: str, tensors: tuple[Any, ...]) -> Row:
        having = {
            number: letters.index(letter)
            for number, letters in enumerate(self.operands)
            if letter in letters
        }
        wide = {
            number: dim for number, dim in having.items() if not is_one(tensors[number].shape[dim])
        }
        row: Row = [REPLICATE] * (1 + len(tensors))
        row[0] = (
            ShardingPlaceholder(self.output.index(letter))
            if letter in self.output
            else Partial("sum")
        )
        # Where every size is 1 nothing is broadcast: all are cut, into one piece that has it.
        for number, dim in (wide or having).items():
            row[1 + number] = ShardingPlaceholder(dim)
        return row

    def _linear(self, tensors: tuple[Any, ...]) -> Iterator[Row]:
        for number, tensor in enumerate(tensors):
            for reduce_op in ("sum", "avg") if is_inexact(tensor.dtype) else ("sum",):
                row: Row = [REPLICATE] * (1 + len(tensors))
                row[0] = row[1 + number] = Partial(reduce_op)
                yield row


def einsum(equation: str, *, linearity: bool = True) -> Einsum:
    """Build the rule of an op that multiplies its tensors and sums, as an einsum equation says.

    Args:
        equation: as for `torch.einsum`, in its explicit form, for any number of operands; no
            `...`, and no letter twice in one operand. Spaces are ignored.
        linearity: whether a partial operand may pass through. Switch it off for an op that is
            no product of what it is given: one that rounds, quantises or clamps an operand.

    Raises:
        NotationError: with a caret under the character that does not fit.

    >>> from dtensor_registry.placements import show_placements
    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> a, b = TensorMeta((4, 6), (6, 1), None), TensorMeta((6, 8), (8, 1), None)
    >>> for row in einsum("mk,kn->mn", linearity=False)("acme.matmul.default", (a, b), {}):
    ...     print(show_placements(row))
    S?(0), S?(0), R
    P(sum), S?(1), S?(0)
    S?(1), R, S?(1)
    """
    arrow = equation.find("->")
    if arrow < 0:
        problem = "expected '->' and the output's letters"
        raise NotationError(equation, len(equation), problem, _ADVICE)
    operands = []
    start = 0
    for text in equation[:arrow].split(","):
        operands.append(_read_letters(equation, start, start + len(text)))
        start += len(text) + 1
    output = _read_letters(equation, arrow + 2, len(equation))
    for letter in output:
        if not any(letter in operand for operand in operands):
            position = equation.index(letter)
            problem = f"no operand has the output's {letter!r}"
            raise NotationError(equation, position, problem, _ADVICE)
    return Einsum(tuple(operands), output, linearity)


def _read_letters(equation: str, start: int, stop: int) -> Letters:
    letters: list[str] = []
    for position in range(start, stop):
        character = equation[position]
        if character == " ":
            continue
        if not (character.isascii() and character.isalpha()):
            problem = f"expected a letter, not {character!r}"
            raise NotationError(equation, position, problem, _ADVICE)
        if character in letters:
            problem = f"{character!r} stands twice in one tensor: a diagonal has no sharding rule"
            raise NotationError(equation, position, problem, _ADVICE)
        letters.append(character)
    return tuple(letters)
