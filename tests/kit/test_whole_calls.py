"""Rules whose rows cannot be judged one by one are judged by calls on DTensors."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from dtensor_registry_kit.pytest_plugin.only import only
from dtensor_registry_kit.verification.targets import find_targets
from dtensor_registry_kit.verification.verify import Options, Verified, verify_target

PLUGIN = """
    import torch
    from dtensor_registry import Compute, SingleDimStrategy, amended, hookimpl, pointwise, reduction

    def calls():
        yield (torch.arange(1.0, 9.0).reshape(4, 2),), {}

    def other_result(call):
        return Compute(lambda op, args, kwargs: args[0] * 3)

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy(
            "aten.neg.default", amended(lambda call: WRONG, because="negation"), samples=calls
        )]
"""
QUICK = Options(draws=1)


def verified(fake_distribution: Any, outcome: str) -> Verified:
    fake_distribution("acme-rules", dedent(PLUGIN).replace("WRONG", outcome))
    (target,) = find_targets(only("acme-rules"))
    return verify_target(target, QUICK)


def test_an_amendment_that_leaves_all_to_torch_is_trusted_and_the_note_says_how(
    fake_distribution: Any,
) -> None:
    found = verified(fake_distribution, "None")
    assert (found.state, found.report.errors) == ("trusted", ())
    assert found.report.combinations == len(found.report.sound) > 6
    assert found.note == (
        "rows were not judged, only calls on DTensors: torch's own rule is amended, for some"
        " calls: there are no rows to judge"
    )


def test_an_amendment_that_computes_another_result_is_wrong(fake_distribution: Any) -> None:
    found = verified(fake_distribution, "other_result(call)")
    assert found.state == "WRONG"
    assert {finding.kind for finding in found.report.errors} == {"dispatch"}
    assert "check_installed(torch.ops.aten.neg.default" in found.report.errors[0].program


LOCAL = """
    import torch
    from dtensor_registry import SingleDimStrategy, hookimpl, row

    def calls():
        yield (torch.arange(16.0).reshape(8, 2), 0, 1, 5, 1), {}

    def changes(arguments, inputs, outputs):
        return CHANGES

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy(
            "aten.slice.Tensor",
            row(out="S(1)", self="S(1)"),
            local_arguments=changes,
            samples=calls,
        )]
"""


@pytest.mark.parametrize(
    ("changes", "state"), [("{}", "trusted"), ('{"end": 4}', "WRONG")], ids=["right", "wrong"]
)
def test_what_a_rank_passes_otherwise_is_judged_too(
    fake_distribution: Any, changes: str, state: str
) -> None:
    fake_distribution("acme-rules", dedent(LOCAL).replace("CHANGES", changes))
    (target,) = find_targets(only("acme-rules"))
    found = verify_target(target, QUICK)
    assert found.state == state, str(found)
    assert found.note.endswith("a rank passes other arguments than the whole call")
