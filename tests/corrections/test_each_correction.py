"""Each correction beside bare torch: bare torch is wrong, and with the correction it is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._prims  # registers torch.ops.prims
from packaging.version import Version

import dtensor_registry as dr
from dtensor_registry import Counterexample
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry_corrections.rules import STRATEGIES
from dtensor_registry_kit.corrections.counterexamples import run_counterexample
from dtensor_registry_kit.pytest_plugin.only import only

RELEASE = Version(torch.__version__).release
CASES = [
    pytest.param(op, shown, id=f"{op}: {shown.row}: {shown} from {shown.since}")
    for strategy in STRATEGIES
    for op in strategy.names
    for shown in strategy.shows
    if shown.is_of(op)
]
AVERAGES_OF_INTEGERS = "gloo does not compute averages of integers"


def is_wrong_here(shown: Counterexample) -> bool:
    return Version(shown.since).release <= RELEASE <= Version(shown.until).release


def is_write(op: str) -> bool:
    return op.split(".")[1].endswith("_") or op.endswith("out")


@pytest.mark.parametrize(("op", "shown"), CASES)
def test_bare_torch_is_wrong_and_the_corrected_rule_is_right(
    local_mesh: Any, op: str, shown: Counterexample
) -> None:
    overload, mesh = find_op(op), local_mesh(shown.ranks)
    assert overload is not None
    if is_wrong_here(shown) and not shown.hangs:
        bare = run_counterexample(overload, shown, mesh)
        assert bare.verdict == ("raises" if shown.raises else "wrong"), bare
    with dr.install(only("dtensor-registry-corrections")):
        corrected = run_counterexample(overload, shown, mesh)
    # Where rows are left out, what is written to cannot be moved, and the call is refused.
    refused = is_write(op) and "<-" in shown.row
    assert corrected.verdict == ("raises" if refused else "right"), corrected


def test_each_correction_has_a_counterexample() -> None:
    without = [
        op
        for strategy in STRATEGIES
        for op in strategy.names
        if not any(shown.is_of(op) for shown in strategy.shows)
    ]
    assert without == [], AVERAGES_OF_INTEGERS
