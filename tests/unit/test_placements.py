"""The notation of placements: what prints can be read again, and errors point at the character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtensor_registry.errors import PlacementSyntaxError
from dtensor_registry.placements import (
    REDUCE_OPS,
    REPLICATE,
    Partial,
    Shard,
    ShardingPlaceholder,
    StridedShard,
    parse_placements,
    show_placements,
)

DIMS = st.integers(-99, 99)
PLACEMENTS = st.one_of(
    st.just(REPLICATE),
    st.builds(Shard, DIMS),
    st.builds(ShardingPlaceholder, DIMS),
    st.builds(ShardingPlaceholder, DIMS, st.integers(1, 2**40)),
    st.builds(StridedShard, DIMS, st.integers(0, 99)),
    st.builds(Partial, st.sampled_from(REDUCE_OPS)),
)


@given(st.lists(PLACEMENTS, min_size=1, max_size=5).map(tuple))
def test_what_is_printed_reads_back_as_it_was(placements: tuple[object, ...]) -> None:
    assert parse_placements(show_placements(placements)) == placements  # type: ignore[arg-type]


@given(
    st.lists(PLACEMENTS, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["", " ", "\t", "  "]),
)
def test_spaces_around_placements_mean_nothing(placements: tuple[object, ...], space: str) -> None:
    text = f"{space},{space}".join(map(str, placements))
    assert parse_placements(f"{space}{text}{space}") == placements


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        ("P", Partial("sum")),
        ("_S(0,2)", StridedShard(0, 2)),
        ("S( 1 )", Shard(1)),
        ("S(2) / 8", ShardingPlaceholder(2, groups=8)),
    ],
)
def test_short_and_spaced_forms_are_read(text: str, placement: object) -> None:
    assert parse_placements(text) == (placement,)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("X", 0),
        ("S(0), X", 6),
        ("R,", 2),
        ("R R", 2),
        ("R;R", 1),
        ("S(0),, R", 5),
        ("P(sum), S[0]", 9),
        ("S(0", 3),
        ("_S(0)", 4),
        ("S(0)/", 5),
        ("S(0)/x", 5),
        ("S(0)/0", 5),
        ("S(0)/4/2", 6),
    ],
)
def test_a_syntax_error_points_at_the_first_character_that_does_not_fit(
    text: str, position: int
) -> None:
    with pytest.raises(PlacementSyntaxError) as caught:
        parse_placements(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "R,X",
            "expected R, S(0), _S(0, 2) or P(sum), at position 2:\n    R,X\n      ^",
        ),
        (
            "R, P(mean)",
            "a reduction is one of sum, avg, product, min, max, band, bor, bxor,"
            " at position 5:\n    R, P(mean)\n         ^",
        ),
    ],
)
def test_a_syntax_error_shows_the_text_with_a_caret(text: str, message: str) -> None:
    with pytest.raises(PlacementSyntaxError) as caught:
        parse_placements(text)
    assert str(caught.value) == message


def test_a_dim_holds_at_least_one_group() -> None:
    with pytest.raises(ValueError, match="dim 2 cannot hold 0 groups: give one or more"):
        ShardingPlaceholder(2, groups=0)
    assert ShardingPlaceholder(2, groups=8) != ShardingPlaceholder(2)
    assert len({ShardingPlaceholder(2, groups=8), ShardingPlaceholder(2, 8)}) == 1


def test_an_output_that_is_no_tensor_prints_as_a_dash() -> None:
    assert show_placements([None, Shard(0)]) == "-, S(0)"


def test_a_partial_that_knows_more_than_its_reduction_shows_torchs_object() -> None:
    assert str(Partial("sum", native="MaskPartial(offset=8)")) == "P(MaskPartial(offset=8))"
