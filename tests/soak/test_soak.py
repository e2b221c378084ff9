"""A short soak: calls in two threads while rules change, every answer of a rule in force."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.py"


@pytest.fixture
def two_ranks() -> Any:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def test_every_answer_is_that_of_a_rule_which_was_in_force_during_the_call(two_ranks: None) -> None:
    outcome = runpy.run_path(str(SCRIPT))["soak"](dispatches=2000, every=50, threads=2)
    assert outcome.wrong == []
    assert outcome.dispatches == 2000
    assert outcome.changes >= 30
    assert outcome.sharp > 1000
