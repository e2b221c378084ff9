"""When two tensors count as the same."""

from __future__ import annotations

import pytest
import torch

from dtensor_registry_kit.simulation.compare import carries_evidence, difference, relative_tolerance


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        (torch.ones(2), torch.ones(3), "shape (2,), whole run (3,)"),
        (
            torch.ones(2),
            torch.ones(2, dtype=torch.int64),
            "dtype torch.float32, whole run torch.int64",
        ),
        (torch.tensor(3), torch.tensor(5), "3, whole run 5 (largest difference 2)"),
        (
            torch.tensor([True]),
            torch.tensor([False]),
            "at [0]: True, whole run False (largest difference 1)",
        ),
        (
            torch.tensor([[1.0, 2.0]]),
            torch.tensor([[1.0, float("nan")]]),
            "at [0, 1]: 2.0, whole run nan"
            " (largest difference inf, of which rounding explains 1.0e-06)",
        ),
    ],
)
def test_what_differs_is_said_with_place_and_both_numbers(
    got: torch.Tensor, want: torch.Tensor, said: str
) -> None:
    assert str(difference(got, want, 1e-6)) == said


def test_numbers_that_rounding_explains_are_the_same() -> None:
    one = torch.tensor([1.0, 100.0])
    assert difference(one + torch.tensor([1e-5, 0.0]), one, 1e-6) is None
    assert difference(one + torch.tensor([1e-3, 0.0]), one, 1e-6) is not None


def test_nan_and_infinity_equal_themselves_alone() -> None:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    assert difference(odd.clone(), odd, 1e-6) is None
    assert difference(-odd, odd, 1e-6) is not None


def test_integers_are_compared_exactly_whatever_the_tolerance() -> None:
    big = torch.tensor([2**62], dtype=torch.int64)
    assert difference(big + 1, big, 1.0) is not None


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e5m2])
def test_dtypes_without_kernels_of_their_own_are_compared_too(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 2.0]).to(dtype)
    assert difference(x, x.clone(), 1e-3) is None
    assert difference(x, torch.tensor([1.0, 4.0]).to(dtype), 1e-3) is not None


def test_tolerance_follows_the_coarsest_dtype_and_the_length_of_sums() -> None:
    def tolerance(dtype: torch.dtype, length: int) -> float:
        return relative_tolerance([torch.ones(1, dtype=dtype)], length)

    assert tolerance(torch.float64, 1) < tolerance(torch.float32, 1) < tolerance(torch.bfloat16, 1)
    assert tolerance(torch.float64, 100) > tolerance(torch.float64, 1)
    # Sums of half precision are kept in float32: length hardly matters.
    assert tolerance(torch.bfloat16, 100) < 1.01 * tolerance(torch.bfloat16, 1)
    mixed = [torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.bfloat16)]
    assert relative_tolerance(mixed, 1) == tolerance(torch.bfloat16, 1)
    assert tolerance(torch.int64, 100) == 0.0


@pytest.mark.parametrize(
    ("whole", "is_evidence"),
    [
        (torch.zeros(4), False),
        (torch.full((4,), 3.0), False),
        (torch.empty(0), False),
        (torch.tensor([float("nan"), float("inf")]), False),
        (torch.tensor(True), False),
        (torch.tensor(3), True),
        (torch.tensor([0.0, 1.0]), True),
        (torch.tensor([True, False]), True),
    ],
)
def test_plain_outputs_are_no_evidence(whole: torch.Tensor, is_evidence: bool) -> None:
    assert carries_evidence(whole) is is_evidence
