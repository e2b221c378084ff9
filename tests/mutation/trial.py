"""Whether a planted fault is caught, and what it did to the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import torch

from dtensor_registry_kit import Finding, Sample, check
from dtensor_registry_kit.judging.behaviour import query
from dtensor_registry_kit.pytest_plugin.only import only
from dtensor_registry_kit.samples.choose import samples_for
from dtensor_registry_kit.samples.sample import variants
from dtensor_registry_kit.verification.targets import Target, find_targets
from tests.mutation.faults import Fault, faults_of

DISTRIBUTIONS = ("acme-kernels", "dtensor-registry-matrix", "dtensor-registry-pointwise")
CALLS = 6


@dataclass(frozen=True)
class Trial:
    """What became of a fault.

    Attributes:
        fault: the fault.
        caught: the first finding that makes the rule wrong, or None.
        planted: the rows, printed, that the fault put in, over all calls that were tried.
        dead: those among them that could be used for no call at all.
    """

    fault: Fault
    caught: Finding | None
    planted: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()


UNPROVABLE = ("aten._scaled_dot_product_fused_attention_overrideable.default",)
"""It returns a random seed that is drawn anew each time."""


@lru_cache(maxsize=1)
def targets() -> dict[str, list[Target]]:
    """Rules of our plugins and of the example vendor, by distribution.

    Left out are ops whose kernels die on an empty piece: a fault would take this process down.
    And ops that nothing can be proven of.
    """
    return {
        name: [
            s
            for s in find_targets(only(name))
            if s.rule is not None and s.allow_empty_pieces and s.name not in UNPROVABLE
        ]
        for name in DISTRIBUTIONS
    }


@cache
def calls_of(name: str, plugin: str) -> tuple[Sample, ...]:
    """Sample calls of an op, as `verify` takes them."""
    found = (s for group in targets().values() for s in group if s.key == (plugin, name))
    target = next(found)
    assert target.op is not None
    return samples_for(target.op, target.samples, CALLS).calls


def try_fault(fault: Fault) -> Trial:
    """Check the rule with the fault, call after call, until something speaks against it."""
    torch.set_num_threads(1)
    target = fault.target
    calls = calls_of(target.name, target.plugin)
    for upto in (1, len(calls)):
        report = check(
            target.op,
            calls[:upto],
            fault.rule,
            schema_info=fault.schema_info,
            allow_uneven_sharding=target.allow_uneven_sharding,
            budget=0,
        )
        if report.errors:
            return Trial(fault, report.errors[0])
    dead = tuple(finding.about for finding in report.of_kind("dead"))
    return Trial(fault, None, tuple(dict.fromkeys(_planted(fault, calls))), dead)


def _planted(fault: Fault, calls: Sequence[Sample]) -> Iterator[str]:
    for call in calls:
        for variant in variants(call):
            try:
                before = set(query(fault.target.rule, fault.target.op, variant).shown)
            except Exception:  # noqa: S112 (a faulty rule may raise; others judge that)
                continue
            for row in query(fault.rule, fault.target.op, variant).shown:
                if row not in before:
                    yield row


def planted_faults() -> list[Fault]:
    """List the faults of the full run: all in the small tables, of pointwise some in each family.

    The ops of a family have one rule, so each kind of fault goes into one op of the family,
    another one for each kind.
    """
    small = [s for name in DISTRIBUTIONS[:2] for s in targets()[name]]
    faults = [fault for target in small for fault in faults_of(target)]
    families: dict[int, list[Target]] = {}
    for target in targets()[DISTRIBUTIONS[2]]:
        families.setdefault(id(target.rule), []).append(target)
    for number, family in enumerate(families.values()):
        kinds = len(list(faults_of(family[0])))
        for kind in range(kinds):
            target = family[(7 * kind + number) % len(family)]
            faults.append(list(faults_of(target))[kind])
    return faults
