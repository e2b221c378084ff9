"""Faults planted in the rules of our plugins are caught, all that are faults; right rules are not.

A run takes some of the faults, DTENSOR_REGISTRY_LONG=1 all of them:

    DTENSOR_REGISTRY_LONG=1 python -m pytest tests/mutation -n 2
"""

from __future__ import annotations

import os

import pytest

from dtensor_registry_kit import check
from dtensor_registry_kit.verification.targets import Target
from tests.mutation.equivalent import RIGHT, reason_of
from tests.mutation.faults import Fault
from tests.mutation.trial import calls_of, planted_faults, targets, try_fault

LONG = bool(os.environ.get("DTENSOR_REGISTRY_LONG"))
# Numbers that share no factor with that of the kinds of fault, so that every kind gets its turn.
FAULTS = planted_faults()
SOME_FAULTS = FAULTS if LONG else FAULTS[3::19]
RULES = [target for group in targets().values() for target in group]
SOME_RULES = RULES if LONG else RULES[5::37]


@pytest.mark.parametrize("fault", SOME_FAULTS, ids=str)
def test_a_planted_fault_is_caught_or_there_is_a_reason_why_it_is_none(fault: Fault) -> None:
    trial = try_fault(fault)
    reason = None if trial.caught else reason_of(trial)
    assert trial.caught or reason, f"{fault} was overlooked; it planted {trial.planted}"


@pytest.mark.parametrize("target", SOME_RULES, ids=lambda target: target.name)
def test_a_rule_without_a_fault_is_not_flagged(target: Target) -> None:
    report = check(
        target.op,
        calls_of(target.name, target.plugin),
        target.rule,
        schema_info=target.schema_info,
        allow_uneven_sharding=target.allow_uneven_sharding,
        budget=0,
    )
    assert report.errors == (), str(report)
    assert report.is_trusted


def test_every_kind_of_fault_is_planted_in_every_plugin() -> None:
    kinds = {(fault.kind, fault.target.plugin) for fault in FAULTS}
    assert len(FAULTS) > 1000
    assert len(kinds) == 3 * len({fault.kind for fault in FAULTS})
    assert {fault.kind for fault in SOME_FAULTS} == {fault.kind for fault in FAULTS}


@pytest.mark.parametrize(("kind", "op"), RIGHT, ids=lambda part: part)
def test_a_row_that_is_said_to_be_right_is_not_flagged(kind: str, op: str) -> None:
    (fault,) = [fault for fault in FAULTS if (fault.kind, fault.target.name) == (kind, op)]
    trial = try_fault(fault)
    assert trial.caught is None
    assert trial.planted
