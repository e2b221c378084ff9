"""From what an author writes to a rule, with everything checked that can be before a call."""

from __future__ import annotations

from collections.abc import Mapping

from dtensor_registry.errors import NotationError
from dtensor_registry.rules.notation.axes import inner_factors, outer_factors
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
    does; `(h d)` is one dim made of two, which may be cut between two elements of `h`, `1` a dim
    of size 1, `()` a tensor without dims, and `_` a tensor that is the same on every rank.

    Args:
        equation: the op's tensor arguments, `->`, and what it returns.
        reduce: letters, of inputs alone, over which the op reduces: `"k"` if it sums, or
            `{"k": "max"}`. To cut one leaves each rank a partial result.
        fixed: letters that are never cut, for example a sequence that is sorted. A letter of
            outputs alone must be among them.
        sizes: of factors, where the op knows them: `{"d": 64}`, or `{"d": "head_dim"}`, the
            argument that holds it. Sizes are checked at every call. Such a factor is not cut, in
            any tensor, since the op would be told the size of the whole on each piece; it may
            tell the size of one that is.

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
    for item in known:
        check_size(item, {mark.name for mark in marks if not mark.is_group})
    whole = {item.name for item in never_cut}
    _check_something_is_cut(equation, parsed, whole, {item.name for item in known})
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


def _check_something_is_cut(
    equation: str, parsed: Parsed, fixed: set[str], given: set[str]
) -> None:
    tensors = (*parsed.inputs, *parsed.outputs)
    inner, outer = inner_factors(tensors), outer_factors(tensors)
    unknown = outer - _told_sizes(parsed, fixed, given)
    marks = [mark for tensor in parsed.marks for mark in tensor]
    if not outer or any(mark.name not in inner | unknown | fixed | given & outer for mark in marks):
        return
    mark = next(mark for mark in marks if mark.in_product)
    if mark.name in fixed:
        problem = f"{mark.name!r} is never to be cut"
        advice = "Name a dim that may be."
    elif mark.name in inner:
        problem = f"{mark.name!r} stands behind another factor somewhere, where no cut can go"
        advice = "Name a dim that stands for itself, or comes first."
    elif mark.name in given:
        problem = f"the size of {mark.name!r} is given, and a piece of it would have another"
        advice = "If the op is told the sizes of the other factors, give those."
    else:
        problem = f"the size of {mark.name!r} cannot be told, so neither where a cut may fall"
        advice = "Give the sizes of the factors behind it, or name a dim that stands for itself."
    raise NotationError(equation, mark.position, f"nothing is left to cut: {problem}", advice)


def _told_sizes(parsed: Parsed, fixed: set[str], given: set[str]) -> set[str]:
    """List the letters whose size a call will tell, as far as the equation says."""
    axes = [axis for tensor in parsed.inputs for axis in tensor or ()]
    alone = {axis.letters[0] for axis in axes if len(axis.letters) == 1 and not axis.is_group}
    told = (alone - fixed) | given
    products = [axis for axis in axes if axis.is_product]
    for _ in products:  # one that is told may help another, each at most once
        for axis in products:
            untold = [letter for letter in axis.letters if letter not in told]
            if len(untold) == 1 and untold[0] not in fixed:
                told.add(untold[0])
    return told


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
