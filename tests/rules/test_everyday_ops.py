"""The everyday overloads: what DTensor can do with them, with torch alone and with all plugins."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from dtensor_registry_structure.refused import REFUSED
from tests.rules.everyday import PIECES, counted, listed, overloads

RUNS_AS_LISTED = torch.__version__.startswith("2.13.")


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, str], dict[str, str]]:
    alone, together = counted().values()
    return alone, together


@pytest.mark.skipif(not RUNS_AS_LISTED, reason="the list was made with torch 2.13")
def test_the_list_is_what_the_models_reach() -> None:
    reached = [name for names in overloads().values() for name in names]
    assert reached == listed()


def test_the_list_has_137_overloads_in_eight_groups() -> None:
    assert len(set(listed())) == len(listed()) == 137
    assert len(PIECES) == 8


@pytest.mark.skipif(not RUNS_AS_LISTED, reason="the list was made with torch 2.13")
def test_torch_alone_leaves_25_of_them_with_nothing(found: Any) -> None:
    alone, _ = found
    assert Counter(alone.values()) == {"rule": 97, "decomposition": 15, "nothing": 25}


def test_with_all_plugins_only_refused_ones_have_neither_rule_nor_decomposition(found: Any) -> None:
    _, together = found
    left = {name for name, kind in together.items() if kind in ("fallback", "nothing")}
    assert left <= set(REFUSED)
    assert "nothing" not in together.values()
