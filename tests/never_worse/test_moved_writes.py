"""Where a rule of torch's moves what an op writes to, the write reaches the program's tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.never_worse.comparison import Comparison

IMAGE = torch.randn(4, 4, 3)
MEAN, VARIANCE = torch.zeros(4), torch.ones(4)


def normalize(training: bool) -> Callable[..., Any]:
    def program(x: Any, mean: Any, variance: Any) -> Any:
        out = functional.batch_norm(x, mean, variance, training=training)
        return out, mean, variance

    return program


@pytest.mark.parametrize("statistics", ["R", "S(0)", "P(avg)", "P(sum)"])
@pytest.mark.parametrize("image", ["R", "S(0)", "S(1)", "P(sum)"])
def test_batch_norm_updates_its_running_statistics_wherever_they_are(
    compare: Callable[..., Comparison], image: str, statistics: str
) -> None:
    tensors = ((IMAGE, image), (MEAN, statistics), (VARIANCE, statistics))
    found = compare(2).assert_none_worse({"batch_norm": normalize(training=True)}, *tensors)
    assert not found["batch_norm"].error


def test_a_batch_cut_by_channels_stays_cut_where_all_ranks_have_the_statistics(
    compare: Callable[..., Comparison],
) -> None:
    found = compare(2).outcomes(
        {"batch_norm": normalize(training=True)}, (IMAGE, "S(1)"), (MEAN, "R"), (VARIANCE, "R")
    )
    # The statistics alone are gathered.
    assert found["batch_norm"].placements == ("S(1)", "R", "R")
    assert found["batch_norm"].collectives == 2


def test_batch_norm_moves_no_more_than_on_bare_torch_when_it_writes_nothing(
    compare: Callable[..., Comparison],
) -> None:
    tensors = ((IMAGE, "S(1)"), (MEAN, "R"), (VARIANCE, "R"))
    found = compare(2).assert_none_worse({"batch_norm": normalize(training=False)}, *tensors)
    assert found["batch_norm"].collectives == 0
