"""E1: several answers cost the same; which one is taken must not hang on the hash seed.

Ranks are separate processes, each with a seed of its own: where they pick differently, they
run different collectives. 8 seeds by default, 30 with `DTENSOR_REGISTRY_LONG=1`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor._decompositions import DecompShardingStrategy
from torch.distributed.tensor._op_schema import OpSchema

import dtensor_registry as dr
from tests.adoption.hash_seed_program import answers

SEEDS = range(30 if os.environ.get("DTENSOR_REGISTRY_LONG") == "1" else 8)
PROGRAM = Path(__file__).with_name("hash_seed_program.py")

pytestmark = pytest.mark.timeout(900)


def printed(seed: int) -> dict[str, dict[str, str]]:
    ran = subprocess.run(
        [sys.executable, PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answers: dict[str, dict[str, str]] = json.loads(ran.stdout)
    return answers


def test_equally_cheap_answers_are_the_same_under_every_hash_seed() -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(printed, SEEDS))

    # Shown with `pytest -rP`: what bare torch makes of it is for torch to change.
    for call in runs[0]["bare"]:
        given = Counter(run["bare"][call] for run in runs)
        print(f"bare torch: {' and '.join(map(str, given.values()))} seeds agree on {call}")
    for call in runs[0]["adopted"]:
        assert len({run["adopted"][call] for run in runs}) == 1, call


def test_the_order_in_which_torch_lists_placements_decides_nothing(
    fake_ranks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, for any seed: torch's list comes in two orders, which no seed may ever give."""
    mesh = init_device_mesh("cpu", (2, 2))
    listed = DecompShardingStrategy._get_candidate_placements
    given = []
    for order in (list, reversed):

        def ordered(schema: OpSchema, order: Any = order) -> list[Any]:
            return list(order(listed(schema)))

        monkeypatch.setattr(
            DecompShardingStrategy, "_get_candidate_placements", staticmethod(ordered)
        )
        with dr.install(dr.Settings(allowed=())):
            given.append(answers(mesh))

    assert given[0] == given[1]
