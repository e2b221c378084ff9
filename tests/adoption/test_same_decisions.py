"""Ops of torch's own single-dim rules, once adopted, are decided as bare torch decides them.

A sample of all ops by default; everything with `DTENSOR_REGISTRY_LONG=1`, which takes long.
"""

from __future__ import annotations

import os

import pytest

from tests.adoption.calls import Calls
from tests.adoption.comparison import (
    DECOMPOSED_LONG,
    DECOMPOSED_SHORT,
    LONG,
    SHORT,
    Tally,
    adopted,
    calls_of,
    compare,
)
from tests.adoption.differences import decomposed

ALL = os.environ.get("DTENSOR_REGISTRY_LONG") == "1"

pytestmark = pytest.mark.timeout(4 * 3600 if ALL else 900)


@pytest.fixture(scope="module")
def known(fake_ranks: None) -> Calls:
    return calls_of(LONG if ALL else SHORT)


@pytest.fixture(scope="module")
def tally(known: Calls) -> Tally:
    return compare(adopted(), known, LONG if ALL else SHORT)


def test_nine_of_ten_adopted_ops_are_compared(tally: Tally) -> None:
    assert len(tally.ops) >= 0.9 * tally.wanted, str(tally)


def test_most_cases_have_an_answer(tally: Tally) -> None:
    assert tally.undecided < 0.25 * tally.total, str(tally)


def test_nothing_that_torch_decides_fails_once_adopted(tally: Tally) -> None:
    assert not tally.broken, str(tally)


def test_answers_differ_from_torch_for_known_reasons_only(tally: Tally) -> None:
    assert not tally.unexplained, str(tally)


def test_ops_that_torch_decomposes_are_decided_as_before(known: Calls) -> None:
    tally = compare(decomposed(known), known, DECOMPOSED_LONG if ALL else DECOMPOSED_SHORT)

    assert tally.total > 100
    assert not tally.broken, str(tally)
    assert not tally.unexplained, str(tally)
