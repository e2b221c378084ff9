"""A rule from an equation is a value: it prints what builds it again, and equals its like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dtensor_registry.errors import NotationError
from dtensor_registry.rules import Notation, notation

PRINTED = [
    (notation("mk,kn->mn"), 'notation("m k, k n -> m n")'),
    (
        notation(" b...m k ,b... kn->b...m n ", reduce=" k"),
        'notation("b... m k, b... k n -> b... m n", reduce="k")',
    ),
    (notation("...k->...", reduce={"k": "max"}), 'notation("... k -> ...", reduce={"k": "max"})'),
    (
        notation("mk,kn,_->(),_,1", reduce={"n": "min", "k": "sum", "m": "sum"}),
        'notation("m k, k n, _ -> (), _, 1", reduce={"m": "sum", "k": "sum", "n": "min"})',
    ),
    (
        notation("b s ( h d )->bhsd", sizes={"d": "head_dim", "h": 8}, fixed="s"),
        'notation("b s (h d) -> b h s d", fixed="s", sizes={"h": 8, "d": "head_dim"})',
    ),
    (notation("b...->b...", fixed="b..."), 'notation("b... -> b...", fixed="b")'),
    (notation("(h)->h"), 'notation("h -> h")'),
    (notation("( )->()"), 'notation("() -> ()")'),
]


@pytest.mark.parametrize(("rule", "shown"), PRINTED)
def test_it_prints_canonically(rule: Notation, shown: str) -> None:
    assert str(rule) == shown


def test_it_compares_by_value() -> None:
    assert notation("mk,kn->mn", reduce="k") == notation("m k, k n -> m n", reduce={"k": "sum"})
    assert len({notation("a->a"), notation(" a -> a")}) == 1
    assert notation("a b -> a b") != notation("a b -> a b", fixed="b")
    assert notation("a b -> a", reduce="b") != notation("a b -> a")


NAMES = "abcd"


@st.composite
def tensors(draw: st.DrawFn, pool: str, groups: str, *, one_group: bool) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["_", "()", "( )"]))
    letters = draw(st.permutations(pool))[: draw(st.integers(0, len(pool)))]
    axes: list[str] = []
    while letters:
        size = draw(st.integers(1, len(letters)))
        taken, letters = letters[:size], letters[size:]
        if len(taken) > 1 and draw(st.booleans()):
            axes.append(f"({draw(st.sampled_from([' ', '']))}{' '.join(taken)})")
        else:
            axes += taken
    for group in draw(st.permutations(groups.split()))[: 1 if one_group else 2]:
        if draw(st.booleans()):
            axes.insert(draw(st.integers(0, len(axes))), group)
    if draw(st.booleans()):
        axes.insert(draw(st.integers(0, len(axes))), "1")
    return " ".join(axes) or "()"


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An equation as an author may write it, with options that hold for it."""
    groups = "p... ..."
    inputs = draw(st.lists(tensors(NAMES, groups, one_group=True), min_size=1, max_size=3))
    pool = "".join(name for name in NAMES if any(name in text for text in inputs))
    used = " ".join(group for group in ("p...",) if any(group in text for text in inputs))
    if any(text.replace("p...", "").count("...") for text in inputs):
        used += " ..."
    outputs = draw(st.lists(tensors(pool, used, one_group=False), min_size=1, max_size=2))
    lacking = [name for name in pool if any(name not in text and text != "_" for text in outputs)]
    reduced = draw(st.sets(st.sampled_from(lacking))) if lacking else set()
    kinds = {name: draw(st.sampled_from(["sum", "max"])) for name in sorted(reduced)}
    free = [name for name in pool if name not in reduced]
    options: dict[str, Any] = {
        "reduce": kinds,
        "fixed": " ".join(sorted(draw(st.sets(st.sampled_from(free))) if free else set())),
        "sizes": {n: draw(st.one_of(st.integers(1, 9), st.just("heads"))) for n in pool[:1]},
    }
    spacing = draw(st.sampled_from(["->", " -> ", "\n->"]))
    return (
        f"{draw(st.sampled_from([',', ' , '])).join(inputs)}{spacing}{', '.join(outputs)}",
        options,
    )


@given(arguments())
def test_what_it_prints_builds_it_again(written: tuple[str, dict[str, Any]]) -> None:
    equation, options = written
    try:
        rule = notation(equation, **options)
    except NotationError as error:
        assume("nothing is left to cut" not in str(error))
        raise
    again = eval(str(rule), {"notation": notation})
    assert again == rule
    assert str(again) == str(rule)
