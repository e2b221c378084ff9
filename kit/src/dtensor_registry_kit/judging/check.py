"""Check one rule for one op: is it right, complete, and well behaved?

report = check(torch.ops.acme.swiglu.default, [((gate, up), {})], pointwise(linear=[(1,)]))
assert report.is_trusted, report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dtensor_registry.placements import Shard
from dtensor_registry.rules.strategy import Rule
from dtensor_registry.rules.well_formed import plain, show_row
from dtensor_registry_kit.isolation import Note, silent
from dtensor_registry_kit.judging.backward import judge_backward
from dtensor_registry_kit.judging.behaviour import (
    Answer,
    changed_mind,
    missing_from_key,
    query,
    repeated,
)
from dtensor_registry_kit.judging.collector import Collector
from dtensor_registry_kit.judging.completeness import missing_rows
from dtensor_registry_kit.judging.findings import Finding, Report
from dtensor_registry_kit.judging.judge import describe_error
from dtensor_registry_kit.judging.reproducer import name_of
from dtensor_registry_kit.judging.soundness import judge_answer
from dtensor_registry_kit.samples.sample import Role, Sample, odd, sample_of, telling, variants
from dtensor_registry_kit.simulation.layout import layout_of
from dtensor_registry_kit.simulation.reference_run import ReferenceRun, alike_memory, run_reference

_MOST_MISSING = 5
"""Missing rows that one call may report, the most useful first."""

_LEAST_SAVING = 0.5
"""Microseconds; a row saves nothing if its inputs can be had for nothing (R as P(avg))."""

SEARCHING = "the search for rows that the rule does not offer"
"""What a check says that it is about meanwhile."""

ON_WHOLE = "the op itself, on whole tensors"
"""Likewise, while no row is tried."""


@alike_memory()
def check(
    op: Callable[..., Any],
    samples: Iterable[Any],
    rule: Rule,
    *,
    owner: str = "",
    schema_info: Any = None,
    allow_uneven_sharding: bool = False,
    allow_empty_pieces: bool = True,
    budget: int = 500,
    seed: int = 0,
    by_pieces: bool = True,
    sizes: bool = True,
    note: Note = silent,
) -> Report:
    """Check a rule against ground truth, call by call.

    Every row is judged on 1-D meshes of 2, 3 and 4 ranks, and in pairs on a (2, 2) mesh, with
    the sample's own numbers and with drawn ones, negated, in half and single precision, with
    sizes that do not divide, sizes of 1, and empty tensors. Then follow gradients, rows that
    the rule could offer and does not, and how the rule behaves when it is asked.

    Args:
        op: an overload, or any callable on tensors that `rule` accepts as its op.
        samples: calls, each a pair `(args, kwargs)` with plain tensors.
        rule: what is to be checked.
        owner: who wrote it, for the report; left out, where the function stands.
        schema_info: the author's, if they narrow the cache key.
        allow_uneven_sharding: whether a dim may be cut into more pieces than it has elements.
        allow_empty_pieces: whether a rank may hold nothing of an input.
        budget: how many ways of handing out the inputs of one call the search for missing
            rows may try; 0 leaves it out.
        seed: of all drawn numbers.
        by_pieces: False leaves out all that runs the op in pieces, for an op of which DTensor
            rewrites the arguments (`view`), so that the pieces' calls are not this call.
        sizes: whether samples are tried in other sizes as well.
        note: is called with what is about to be tried.

    Raises:
        TypeError: if a sample is no pair of arguments and keyword arguments.

    >>> import torch
    >>> from dtensor_registry.rules import pointwise
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    >>> check(torch.mul, [((x, x), {})], pointwise(linear=[(0, 1)])).errors[0].about
    'P(sum) <- P(sum), P(sum)'
    """
    collector = Collector(note=note)
    allow_empty = allow_uneven_sharding if allow_empty_pieces else None
    answers: list[Answer] = []
    for sample in map(sample_of, samples):
        accepted = _judge_call(op, sample, rule, collector, seed, allow_empty, by_pieces, sizes)
        answers += [answer for _, answer in accepted.values()]
        anchor = accepted.get("drawn") or accepted.get("given")
        if anchor is None or not by_pieces:
            continue
        _judge_gradients(*anchor, collector, seed, allow_empty)
        others = [accepted[r][0] for r in ("negated", "truth", "larger", "given") if r in accepted]
        _search(*anchor, others, collector, budget)
    for finding in changed_mind(rule, op, answers):
        collector.add(finding)
    given = [answer for answer in answers if answer.sample.role == "given"]
    for finding in missing_from_key(rule, op, given, schema_info):
        collector.add(finding)
    _judge_use(answers, collector)
    return Report(
        name_of(op),
        owner or _place_of(rule),
        _named(rule),
        collector.findings(),
        collector.sound(),
        collector.samples,
        collector.combinations,
    )


def _judge_call(
    op: Callable[..., Any],
    sample: Sample,
    rule: Rule,
    collector: Collector,
    seed: int,
    allow_empty: bool | None,
    by_pieces: bool,
    sizes: bool,
) -> dict[Role, tuple[ReferenceRun, Answer]]:
    """Judge a sample and its variants; return the first of each role that the op takes."""
    accepted: dict[Role, tuple[ReferenceRun, Answer]] = {}

    def judge_each(calls: Iterable[Sample], partial_only: bool = False) -> None:
        for variant in calls:
            collector.note(f"{ON_WHOLE}: {variant}  ({variant.origin})")
            try:
                whole = run_reference(op, variant.args, variant.kwargs)
            except Exception as error:
                if variant.role == "given":
                    message = f"the op itself raises {describe_error(error)}"
                    collector.add(Finding("untested", message, f"sample {variant}", str(variant)))
                continue
            collector.samples += 1
            answer = query(rule, op, variant)
            if answer.finding is not None:
                collector.add(answer.finding)
                continue
            for finding in repeated(answer):
                collector.add(finding)
            if by_pieces:
                judged = answer.with_partials() if partial_only else answer
                judge_answer(op, whole, judged, collector, seed=seed, allow_empty=allow_empty)
            else:
                _read_answer(whole, answer, collector)
            accepted.setdefault(variant.role, (whole, answer))

    judge_each(variants(sample, seed=seed, sizes=sizes))
    answers = [answer for _, answer in accepted.values()]
    offered = {shown for answer in answers for shown in answer.named}
    if by_pieces and not all(map(collector.is_proven, offered)):
        judge_each(telling(sample, seed=seed))
    elif by_pieces and any(answer.with_partials().rows for answer in answers):
        # Kernels may treat nan otherwise where a piece ends: only sums and the like must bear it.
        judge_each(odd(sample, seed=seed), partial_only=True)
    return accepted


def _read_answer(whole: ReferenceRun, answer: Answer, collector: Collector) -> None:
    """Hold rows against the call on their face, without running anything."""
    for row, shown in zip(answer.rows, answer.named, strict=True):
        fault = layout_of(whole, [row])
        if isinstance(fault, str):
            collector.add(Finding("malformed", fault, shown, str(answer.sample)))


def _judge_gradients(
    whole: ReferenceRun, answer: Answer, collector: Collector, seed: int, allow_empty: bool | None
) -> None:
    proven = set(collector.sound())
    for row, shown in zip(answer.rows, answer.named, strict=True):
        if shown not in proven:
            continue
        for ranks in (2, 3):
            collector.note(f"the gradients of {shown} on {ranks} ranks: {answer.sample}")
            verdict = judge_backward(whole, row, ranks, seed=seed, allow_empty=allow_empty)
            collector.combinations += verdict.outcome != "not applicable"
            if verdict.is_wrong and not verdict.on_empty:
                message = f"on {ranks} ranks: {verdict.evidence}"
                collector.add(Finding("backward", message, shown, str(answer.sample)))
                break


def _search(
    whole: ReferenceRun,
    answer: Answer,
    others: Sequence[ReferenceRun],
    collector: Collector,
    budget: int,
) -> None:
    standing = [
        row
        for row, shown in zip(answer.rows, answer.named, strict=True)
        if not collector.is_wrong(shown)
    ]
    collector.note(f"{SEARCHING}: {answer.sample}")
    found, tried = missing_rows(whole, standing, others, budget)
    collector.combinations += tried
    useful = [missing for missing in found if missing.saves >= _LEAST_SAVING]
    for missing in useful[:_MOST_MISSING]:
        message = f"it would save {missing.saves:.0f} us where inputs come like this"
        shown = show_row(missing.row, len(whole.inputs))
        collector.add(Finding("missing", message, shown, str(answer.sample), saves=missing.saves))


def _judge_use(answers: Sequence[Answer], collector: Collector) -> None:
    """Find out whether a rule never shards, although ground truth knows rows that do."""
    for answer in answers:
        for row in answer.rows:
            if isinstance(row, (list, tuple)) and any(isinstance(plain(e), Shard) for e in row):
                return
    for finding in collector.findings():
        if finding.kind == "missing" and "S(" in finding.about.split("<-")[1]:
            message = f"no row shards anything, but {finding.about} is right"
            collector.add(Finding("vacuous", message, sample=finding.sample))
            return


def _named(rule: Rule) -> str:
    code = getattr(rule, "__code__", None)
    return str(rule) if code is None else f"{rule.__module__}.{rule.__qualname__}"


def _place_of(rule: Rule) -> str:
    code = getattr(rule, "__code__", None)
    return type(rule).__module__ if code is None else f"{code.co_filename}:{code.co_firstlineno}"
