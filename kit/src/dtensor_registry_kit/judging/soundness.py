"""Judge every row that a rule offers for one call, on every mesh that the call is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

from dtensor_registry.placements import REPLICATE
from dtensor_registry_kit.judging.behaviour import Answer
from dtensor_registry_kit.judging.collector import Collector
from dtensor_registry_kit.judging.findings import Finding
from dtensor_registry_kit.judging.judge import Verdict, judge
from dtensor_registry_kit.judging.reproducer import program
from dtensor_registry_kit.samples.sample import Role
from dtensor_registry_kit.simulation.reference_run import ReferenceRun

_LINES = ((2,), (3,), (4,))
_FEW: dict[Role, tuple[tuple[int, ...], ...]] = {"dtype": ((2,),), "truth": ((2,), (3,))}
_SQUARE = (2, 2)
_SQUARE_ROLES = ("drawn", "larger")
_MOST_PAIRS = 150
"""Pairs of rows on a 2-D mesh that are tried for one call; the rest would repeat them."""


def judge_answer(
    op: Callable[..., Any],
    whole: ReferenceRun,
    answer: Answer,
    collector: Collector,
    *,
    seed: int = 0,
    allow_empty: bool | None = False,
) -> None:
    """Judge the rows of one answer on 1-D meshes, then in pairs on a (2, 2) mesh.

    A row that was refuted once is not tried again.
    """
    sample = answer.sample
    asked = f"{sample}  ({sample.origin})"
    for row, shown in zip(answer.rows, answer.named, strict=True):
        for mesh in _FEW.get(sample.role, _LINES):
            if collector.is_wrong(shown):
                break
            collector.note(f"{shown} on {mesh[0]} ranks: {asked}")
            verdict = judge(whole, [row], mesh, seed=seed, allow_empty=allow_empty)
            collector.count(verdict, shown, asked)
            if verdict.is_wrong:
                again = program(op, sample, [row], mesh, seed, allow_empty=bool(allow_empty))
                collector.add(finding_of(verdict, shown, asked, again))
    if sample.role not in _SQUARE_ROLES:
        return
    for rows in islice(_pairs(whole, answer, collector), _MOST_PAIRS):
        collector.note(f"two rows on 2x2 ranks: {asked}")
        verdict = judge(whole, rows, _SQUARE, seed=seed, allow_empty=allow_empty)
        collector.combinations += 1
        if verdict.is_wrong:
            again = program(op, sample, rows, _SQUARE, seed, allow_empty=bool(allow_empty))
            collector.add(finding_of(verdict, " and ".join(verdict.rows), asked, again))


def _pairs(whole: ReferenceRun, answer: Answer, collector: Collector) -> Iterator[tuple[Any, Any]]:
    """Pair the rows that stand so far, and all-Replicate, with each other."""
    standing = [
        row
        for row, shown in zip(answer.rows, answer.named, strict=True)
        if not collector.is_wrong(shown)
    ]
    replicate: Sequence[Any] = [REPLICATE] * (len(whole.tensor_outputs) + len(whole.inputs))
    for pair in product([replicate, *standing], repeat=2):
        if pair != (replicate, replicate):
            yield pair


def finding_of(verdict: Verdict, about: str, sample: str, again: str) -> Finding:
    """Make a finding of a verdict that speaks against a row."""
    ranks = "x".join(map(str, verdict.mesh))
    message = f"on {ranks} ranks: {verdict.evidence}"
    if verdict.on_empty:
        return Finding("crash on empty", message, about, sample, again)
    if verdict.outcome in ("unsound", "crash", "malformed"):
        return Finding(verdict.outcome, message, about, sample, again)
    raise ValueError(f"a verdict that speaks against no row: {verdict}")
