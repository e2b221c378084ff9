"""Equations of all kinds, against an op that does what they say: sums of products."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dtensor_registry.errors import NotationError
from dtensor_registry.placements import ShardingPlaceholder
from dtensor_registry.rules import notation
from dtensor_registry_kit import check_row

LETTERS = "abc"


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, list[torch.Tensor]]:
    """An equation, what it reduces over, and tensors for it, some of them broadcast."""
    sizes = {letter: draw(st.integers(1, 4)) for letter in LETTERS}
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    inputs, tensors = [], []
    for number in range(draw(st.integers(1, 3))):
        letters = draw(st.permutations(LETTERS))[: draw(st.integers(0, 3))]
        axes = [*letters]
        shape = [draw(st.sampled_from([sizes[letter], 1])) for letter in letters]
        if draw(st.booleans()):
            own = [draw(st.sampled_from([n, 1])) for n in batch[draw(st.integers(0, 2)) :]]
            place = draw(st.integers(0, len(axes)))
            axes.insert(place, "...")
            shape[place:place] = own
        inputs.append(" ".join(axes) or "()")
        generator = torch.Generator().manual_seed(number)
        tensors.append(torch.randint(1, 9, shape, generator=generator))
    given = [name for name in (*LETTERS, "...") if any(name in text.split() for text in inputs)]
    kept = [name for name in draw(st.permutations(given)) if draw(st.booleans())] if given else []
    gone = [name for name in given if name not in kept and draw(st.booleans())]
    return f"{', '.join(inputs)} -> {' '.join(kept) or '()'}", " ".join(gone), tensors


@settings(deadline=None, max_examples=150)
@given(calls(), st.integers(2, 3))
def test_every_row_is_sound(call: tuple[str, str, list[torch.Tensor]], ranks: int) -> None:
    equation, reduced, tensors = call

    def product(*operands: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation.replace("()", ""), *operands)

    rows = notation(equation, reduce=reduced)("acme.f.default", tuple(tensors), {})

    for row in rows:
        verdict = check_row(product, tensors, {}, row, ranks, allow_empty=True)
        assert not verdict.is_wrong, verdict
    assert len({str(row) for row in rows}) == len(rows)


@settings(deadline=None)
@given(calls())
def test_each_dim_that_has_a_placement_in_the_output_has_a_row(
    call: tuple[str, str, list[torch.Tensor]],
) -> None:
    equation, reduced, tensors = call
    rows: list[list[Any]] = notation(equation, reduce=reduced)("op", tuple(tensors), {})
    output = torch.einsum(equation.replace("()", ""), *tensors)
    cut = {row[0].dim for row in rows if isinstance(row[0], ShardingPlaceholder)}
    assert cut == set(range(output.dim()))


@st.composite
def factored(draw: st.DrawFn) -> tuple[list[list[str]], dict[str, int], list[torch.Tensor]]:
    """Tensors of an equation, output last, each dim a string of factors; sizes; the inputs."""
    sizes = {letter: draw(st.integers(1, 6)) for letter in LETTERS}
    pool = draw(st.permutations(LETTERS))[: draw(st.integers(1, 3))]

    def tensor() -> list[str]:
        letters = draw(st.permutations(pool))[: draw(st.integers(1, len(pool)))]
        dims: list[str] = []
        for letter in letters:
            joins: bool = draw(st.booleans())
            if dims and joins:
                dims[-1] += letter
            else:
                dims.append(letter)
        return dims

    tensors = [tensor() for _ in range(draw(st.integers(1, 2)))]
    given = "".join("".join(dims) for dims in tensors)
    output = [kept for dim in tensor() if (kept := "".join(x for x in dim if x in given))]
    shapes = [[prod(sizes[letter] for letter in dim) for dim in dims] for dims in tensors]
    generator = torch.Generator().manual_seed(0)
    made = [torch.randint(1, 9, shape, generator=generator) for shape in shapes]
    return [*tensors, output], sizes, made


@settings(deadline=None, max_examples=150)
@given(factored(), st.sampled_from([2, 3, 4]))
def test_every_row_of_an_equation_with_factors_is_sound(
    call: tuple[list[list[str]], dict[str, int], list[torch.Tensor]], ranks: int
) -> None:
    tensors, sizes, operands = call
    told = {letter: sizes[letter] for dims in tensors for dim in dims for letter in dim[1:]}
    einsum = f"{','.join(''.join(dims) for dims in tensors[:-1])}->{''.join(tensors[-1])}"

    def product(*operands: torch.Tensor) -> torch.Tensor:
        split = []
        for operand, dims in zip(operands, tensors, strict=False):
            parts: Any = operand
            for at in reversed(range(len(dims))):
                parts = parts.unflatten(at, (-1, *(told[letter] for letter in dims[at][1:])))
            split.append(parts)
        result = torch.einsum(einsum, *split)
        for at, dim in enumerate(tensors[-1]):
            result = result.flatten(at, at + len(dim) - 1)
        return result

    written = [
        " ".join(f"({dim})" if len(dim) > 1 else dim for dim in dims) or "()" for dims in tensors
    ]
    equation = f"{', '.join(written[:-1])} -> {written[-1]}"
    gone = {letter for dims in tensors for dim in dims for letter in dim} - set(
        "".join(tensors[-1])
    )
    try:
        rule = notation(equation, reduce=" ".join(sorted(gone)), sizes=told)
    except NotationError as error:
        assume("nothing is left to cut" not in str(error))
        raise
    for row in rule("acme.f.default", tuple(operands), {}):
        verdict = check_row(product, operands, {}, row, ranks, allow_empty=True)
        assert not verdict.is_wrong, verdict
