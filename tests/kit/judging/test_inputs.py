"""Drawn values and variants of a sample."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtensor_registry_kit.samples.sample import Sample, draw, sample_of, variants


@given(
    shape=st.lists(st.integers(1, 5), max_size=3),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=80, deadline=None)
def test_drawn_numbers_differ_are_not_zero_and_have_both_signs(
    shape: list[int], dtype: torch.dtype, seed: int
) -> None:
    x = draw(shape, dtype, seed).double().reshape(-1)
    assert len(x.abs().unique()) == x.numel()
    assert (x != 0).all()
    assert x.numel() < 2 or ((x > 0).any() and (x < 0).any())


def test_the_same_seed_draws_the_same_and_another_seed_does_not() -> None:
    assert torch.equal(draw((3,), torch.float64, 1), draw((3,), torch.float64, 1))
    assert not torch.equal(draw((3,), torch.float64, 1), draw((3,), torch.float64, 2))


def test_variants_change_values_dtypes_and_sizes() -> None:
    sample = Sample((torch.ones(8, 4), torch.ones(4, 6)), {})
    assert [(v.origin, str(v)) for v in variants(sample)] == [
        ("as given", "f32[8,4], f32[4,6]"),
        ("drawn values", "f64[8,4], f64[4,6]"),
        ("drawn values, negated", "f64[8,4], f64[4,6]"),
        ("drawn values in f32", "f32[8,4], f32[4,6]"),
        ("drawn values in bf16", "bf16[8,4], bf16[4,6]"),
        ("one element True, the others False", "f64[8,4], f64[4,6]"),
        ("one element False, the others True", "f64[8,4], f64[4,6]"),
        ("each size one larger", "f64[9,5], f64[5,7]"),
        ("size 4 made 1", "f64[8,1], f64[1,6]"),
        ("size 6 made 1", "f64[8,4], f64[4,1]"),
        ("size 8 made 1", "f64[1,4], f64[4,6]"),
        ("size 4 made 0", "f64[8,0], f64[0,6]"),
        ("size 6 made 0", "f64[8,4], f64[4,0]"),
        ("size 8 made 0", "f64[0,4], f64[4,6]"),
    ]


def test_integers_may_be_indices_so_they_are_repeated_and_nothing_is_made_smaller() -> None:
    index = torch.tensor([3, 0])
    found = list(variants(Sample((torch.ones(4), 0, index), {})))
    assert {v.role for v in found} == {"given", "drawn", "negated", "dtype", "truth", "larger"}
    assert all(torch.equal(v.args[2], index) for v in found if v.role != "larger")
    assert found[-1].args[2].tolist() == [3, 0, 3]


def test_sizes_of_0_and_1_are_made_larger_together() -> None:
    sample = Sample((torch.ones(1, 0, 3), torch.ones(1, dtype=torch.int64)), {})
    (last,) = [v for v in variants(sample) if v.origin == "each size of 0 or 1 made 5"]
    assert str(last) == "f64[5,5,3], i64[5]"


def test_what_is_no_tensor_stays_as_it_is_in_every_variant() -> None:
    sample = Sample(([torch.ones(2, 3), None], 1.5), {"dim": -1, "out": torch.ones(2)})
    for variant in variants(sample):
        assert variant.args[0][1] is None
        assert (variant.args[1], variant.kwargs["dim"]) == (1.5, -1)


def test_a_sample_prints_as_a_call() -> None:
    sample = Sample(([torch.ones(2, 3), None], "same"), {"out": torch.ones(2, dtype=torch.bool)})
    assert str(sample) == "[f32[2,3], None], 'same', out=bool[2]"


@pytest.mark.parametrize("call", [(torch.ones(2),), ((torch.ones(2),), 3), torch.ones(2), "xy"])
def test_what_is_no_call_is_refused(call: object) -> None:
    with pytest.raises(TypeError, match=r"a sample is a pair \(args, kwargs\)"):
        sample_of(call)
