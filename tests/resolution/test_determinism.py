"""Neither the order of `sys.path` nor any hash decides who wins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RULE = """\
from dtensor_registry import FallbackStrategy, SingleDimStrategy, hookimpl

def rows(op, args, kwargs):
    return []

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy(op, rows) for op in {"acme.f.default", "acme.g.default"}]

@hookimpl
def provide_fallback():
    return [FallbackStrategy("gather", rows)]
"""

# Everything up to the resolution, for ops that torch would not know yet.
PROGRAM = """\
from dtensor_registry.discovery import discover
from dtensor_registry.errors import ConflictingStrategiesError
from dtensor_registry.resolution import resolve
from dtensor_registry.settings import read_settings

class NoOps:
    def overloads(self, name): return ()
    def torch_table(self, op): return None

settings = read_settings(allowed=["acme-rules", "other-rules"])
discovery = discover(settings)
try:
    resolution = resolve(discovery, settings, NoOps())
    print(resolution)
    print([str(fallback.origin) for fallback in resolution.fallbacks])
except ConflictingStrategiesError as error:
    print(error)
"""

SETTINGS = {
    "an order": {"DTENSOR_REGISTRY_ORDER": '["other", "*"]'},
    "a conflict": {},
    "a conflict that is skipped": {"DTENSOR_REGISTRY_ON_CONFLICT": "skip"},
}


def output(path: list[str], seed: int, settings: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            **settings,
            "PYTHONPATH": os.pathsep.join([*path, *filter(None, sys.path)]),
            "PYTHONHASHSEED": str(seed),
        },
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_outcome_is_one_under_both_path_orders_and_any_hash_seed(
    fake_distribution: Any, tmp_path: Path, kind: str
) -> None:
    # Folders are added to sys.path too, behind the ones that the program is given.
    path = [str(tmp_path / fake_distribution(name, RULE)) for name in ("acme-rules", "other-rules")]
    (once,) = {
        output(order, seed, SETTINGS[kind])
        for order, seed in ((path, 0), (path[::-1], 0), (path, 1), (path[::-1], 7))
    }
    assert "acme-rules 1.0 (entry point 'acme'" in once
    assert "other-rules 1.0 (entry point 'other'" in once
    if kind == "an order":
        assert once.startswith("acme.f.default (pending): other-rules 1.0")
