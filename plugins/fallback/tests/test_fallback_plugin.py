"""The fallback plugin: what it contributes, and that its rows are right where it says so."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dtensor_registry_fallback.rules import FALLBACKS, batch, replicate
from dtensor_registry_kit import check


def test_the_fallbacks_are_sorted_by_name_and_only_batch_must_be_named() -> None:
    assert [(f.name, f.named_only) for f in FALLBACKS] == [("batch", True), ("replicate", False)]


def test_importing_the_plugin_does_not_import_torch() -> None:
    code = "import sys, dtensor_registry_fallback; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_replicate_offers_no_row_of_its_own() -> None:
    assert replicate(torch.ops.aten.mm.default, (torch.ones(2, 2), torch.ones(2, 2)), {}) == []


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (torch.ops.aten.bmm.default, (torch.randn(6, 3, 4), torch.randn(6, 4, 5))),
        (torch.ops.aten.var_mean.correction, (torch.randn(6, 5), [1])),
        (torch.ops.aten.sort.default, (torch.randn(6, 5),)),
    ],
    ids=("bmm", "var_mean", "sort"),
)
def test_batch_is_right_for_ops_that_treat_a_batch_one_by_one(op, args) -> None:  # type: ignore[no-untyped-def]
    report = check(op, [(args, {})], batch)
    assert not report.errors, str(report)
    assert report.sound


def test_batch_is_wrong_for_an_op_that_mixes_the_batch_and_the_check_says_so() -> None:
    report = check(torch.ops.aten.cumsum.default, [((torch.randn(6, 5), 0), {})], batch)
    assert report.errors


def test_an_input_of_another_length_stays_replicated_and_a_scalar_alone_has_no_batch() -> None:
    x, weight, scalar = torch.ones(6, 4), torch.ones(4), torch.ones(())
    rows = batch(torch.ops.aten.native_layer_norm.default, (x, [4], weight, weight, 1e-5), {})
    assert [str(p) for p in rows[0]] == ["S?(0)"] * 4 + ["R", "R"]
    assert batch(torch.ops.aten.relu.default, (scalar,), {}) == []
