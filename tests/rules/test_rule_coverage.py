"""Our rows beside torch's: nothing valid is missing, nothing extra wrong, wrong ones are listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.counterexamples import COUNTEREXAMPLES, counterexample
from benchmarks.rule_coverage import Compared, compare, subjects

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
SOME = [
    "aten.add.Tensor",
    "aten.addmm.default",
    "aten.exp.default",
    "aten.maximum.default",
    "aten.neg.default",
    "aten.nan_to_num.default",
    "aten.threshold.default",
    "prims.fmax.default",
]


@pytest.fixture(scope="module", params=SOME)
def compared(request: pytest.FixtureRequest) -> Compared:
    ((subject, theirs),) = subjects(request.param)
    return compare(subject, theirs, 4)


def test_no_valid_row_of_torchs_is_missing_and_no_row_of_ours_is_wrong(compared: Compared) -> None:
    assert compared.ours
    assert compared.missing == set()
    assert compared.wrong == {}


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page is of torch 2.13")
def test_rows_of_torchs_that_are_wrong_stand_on_the_page(compared: Compared) -> None:
    for row in compared.unsound:
        assert f"| `{compared.op}` | `{row}` |" in PAGE


def test_a_counterexample_is_told_with_what_both_give() -> None:
    told = counterexample("aten.neg.default", "P(min) <- P(max)")
    assert told == "two ranks hold 0, 1 (uint8): the row gives 0, the op 255"
    assert counterexample("aten.exp.default", "P(max) <- P(max)") == ""


def test_every_counterexample_says_what_each_input_of_its_rows_holds() -> None:
    for example in COUNTEREXAMPLES:
        assert all(row.count(",") < len(example.held) for row in example.rows)
