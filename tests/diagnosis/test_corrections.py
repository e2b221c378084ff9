"""`doctor` says which corrections the torch at hand does not need."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

import dtensor_registry as dr
from dtensor_registry import Counterexample, Held
from dtensor_registry.diagnosis import Check
from dtensor_registry.errors import InvalidContributionError
from dtensor_registry_kit.pytest_plugin.only import only

PLUGIN = """
    from dtensor_registry import (
        Counterexample, Held, SingleDimStrategy, amended, hookimpl, without, wrong_rows
    )

    def with_floats(op, args, kwargs):
        return args[0].dtype.is_floating_point

    @hookimpl
    def provide_single_dim_strategy():
        return [
            SingleDimStrategy(
                "aten.fill_.Scalar",
                amended(lambda call: None, because="fills are wrong"),
                shows=(
                    Counterexample("S(0)", (Held("float64", (4,)), 8)),
                    Counterexample("P(sum)", (Held("float64", (4,)), 8)),
                ),
            ),
            SingleDimStrategy(
                "aten.neg.default",
                without(
                    wrong_rows("P(min) <- P(max)", because="of floats", when=with_floats),
                    wrong_rows("P(min) <- P(max)", "P(avg) <- P(max)", because="of integers"),
                ),
            ),
        ]
"""


@pytest.fixture
def acme(fake_distribution: Any) -> str:
    return str(fake_distribution("acme-rules", dedent(PLUGIN)))


def corrections(tried: bool) -> Check:
    return dr.doctor(only("acme-rules"), corrections=tried)["corrections"]


def test_a_counterexample_that_torch_has_right_is_listed_when_it_is_run(acme: str) -> None:
    found = corrections(tried=True)
    assert found.state == "ok"
    assert found.told.endswith("this torch has 1 counterexample(s) right without")
    assert found.details[1:] == (
        "aten.fill_.Scalar: float64[4], 8 as S(0);"
        f" acme-rules 1.0 (entry point 'acme', {acme}.py:12)",
    )


def test_a_row_that_torch_does_not_have_is_listed_once_and_a_row_that_two_entries_share_is_not(
    acme: str,
) -> None:
    found = corrections(tried=False)
    assert found.told == (
        "plugins mend what torch has wrong for 2 op(s); 1 row(s) are not in this torch's rules"
    )
    assert [line.partition(";")[0] for line in found.details] == [
        "aten.neg.default: torch's rule has no row P(avg) <- P(max)"
    ]


def test_counterexamples_are_not_run_where_rules_are_in_force(acme: str) -> None:
    with dr.install(only("acme-rules")):
        found = corrections(tried=True)
    assert found.state == "warn"
    assert found.details[-1].startswith("not tried: rules are in force in this process")
    assert found.next_step.endswith("dtensor-registry doctor --corrections")


def test_counterexamples_are_not_run_in_a_process_group(acme: str, local_mesh: Any) -> None:
    local_mesh(2)
    assert "not tried: a simulated mesh needs a process" in corrections(tried=True).details[-1]


def test_a_counterexample_with_a_placement_too_few_is_refused() -> None:
    with pytest.raises(InvalidContributionError, match=r"1 placement\(s\) for 2 tensor\(s\)"):
        Counterexample("S(0)", (Held("float64", (4,)), Held("float64", (4,))))
