"""From what an author writes to a rule, with everything checked that can be before a call."""

from __future__ import annotations

from collections.abc import Mapping

from dtensor_registry.errors import NotationError
from dtensor_registry.rules.notation.options import Item, check_reduce, check_size, read_option
from dtensor_registry.rules.notation.parse import ADVICE, Mark, Parsed, parse_equation
from dtensor_registry.rules.notation.template import Notation


def notation(
    equation: str,
    *,
    reduce: str | Mapping[str, str] = "",
    fixed: str = "",
    sizes: Mapping[str, int | str] | None = None,
) -> Notation:
    """Build the rule of an op from the dims of its tensors: the same letter is cut together.

    In the equation a tensor is its letters, one per dim, with or without spaces; `...`, or
    `b...` where it needs a name, stands for any number of dims, which are broadcast as numpy
    does; `(h d)` is one dim made of two, `1` a dim of size 1, `()` a tensor without dims, and
    `_` a tensor that is the same on every rank.

    Args:
        equation: the op's tensor arguments, `->`, and what it returns.
        reduce: letters, of inputs alone, over which the op reduces: `"k"` if it sums, or
            `{"k": "max"}`. To cut one leaves each rank a partial result.
        fixed: letters that are never cut, for example a sequence that is sorted. A letter of
            outputs alone must be among them.
        sizes: of factors: `{"h": 8}`, or `{"h": "num_heads"}`, the argument that holds it. Sizes
            are checked at every call; factors are never cut, in any tensor.

    Raises:
        NotationError: with a caret under the character that does not fit.

    >>> from dtensor_registry.placements import show_placements
    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> x, w = TensorMeta((2, 4, 6), (24, 6, 1), None), TensorMeta((6, 8), (8, 1), None)
    >>> matmul = notation("b... m k, b... k n -> b... m n", reduce="k")
    >>> for row in matmul("acme.matmul.default", (x, w), {}): print(show_placements(row))
    S?(0), S?(0), R
    S?(1), S?(1), R
    P(sum), S?(2), S?(0)
    S?(2), R, S?(1)
    """
    parsed = parse_equation(equation)
    reductions = read_option("reduce", reduce, "sum")
    never_cut = read_option("fixed", fixed, "")
    known = read_option("sizes", sizes or {}, "")
    for item in reductions:
        check_reduce(item, parsed.inputs, parsed.outputs)
    _check_fixed(parsed, never_cut, reductions)
    _check_outputs(equation, parsed, {item.name for item in never_cut})
    marks = [mark for tensor in parsed.marks for mark in tensor]
    _check_something_is_cut(equation, marks, {item.name for item in never_cut})
    for item in known:
        check_size(item, {mark.name for mark in marks if not mark.is_group})
    order = list(dict.fromkeys(mark.name for mark in marks))
    return Notation(
        parsed.inputs,
        parsed.outputs,
        tuple((item.name, str(item.value)) for item in _sorted(reductions, order)),
        tuple(item.name for item in _sorted(never_cut, order)),
        tuple((item.name, item.value) for item in _sorted(known, order)),
    )


def _sorted(items: list[Item], order: list[str]) -> list[Item]:
    return sorted(items, key=lambda item: order.index(item.name))


def _check_fixed(parsed: Parsed, items: list[Item], reductions: list[Item]) -> None:
    everything = {mark.name for tensor in parsed.marks for mark in tensor}
    reduced = {item.name for item in reductions}
    for item in items:
        if item.name not in everything:
            raise item.error(f"the equation has no {item.name!r}")
        if item.name in reduced:
            raise item.error(f"{item.name!r} is never cut, so there is nothing to reduce over it")


def _check_something_is_cut(equation: str, marks: list[Mark], fixed: set[str]) -> None:
    factors = {mark.name for mark in marks if mark.in_product}
    if factors and all(mark.name in factors | fixed for mark in marks):
        first = next(mark for mark in marks if mark.in_product)
        raise NotationError(
            equation,
            first.position,
            f"nothing is left to cut: {first.name!r} is a factor of a dim, and no factor is cut",
            "Whether a cut falls between two elements of a factor depends on the number of ranks,"
            " which no rule knows. Name a dim that stands for itself.",
        )


def _check_outputs(equation: str, parsed: Parsed, fixed: set[str]) -> None:
    count = len(parsed.inputs)
    given = {mark.name for tensor in parsed.marks[:count] for mark in tensor}
    for mark in (mark for tensor in parsed.marks[count:] for mark in tensor):
        if mark.name in given or (mark.name in fixed and not mark.is_group):
            continue
        raise NotationError(equation, mark.position, f"no input has {mark.name!r}", _hint(mark))


def _hint(mark: Mark) -> str:
    if mark.is_group:
        return ADVICE
    return f'If the op makes that dim, say that it is never cut: fixed="{mark.name}"'
