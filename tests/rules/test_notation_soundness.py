"""Equations of all kinds, against an op that does what they say: sums of products."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtensor_registry.placements import ShardingPlaceholder
from dtensor_registry.rules import notation
from dtensor_registry.verification import check_row

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
