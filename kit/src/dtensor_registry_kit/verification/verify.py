"""Verify rules of plugins and of torch: each with samples, by ground truth and through DTensor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

import torch

from dtensor_registry.settings import Settings
from dtensor_registry.torch_patch.layers import Entry, Layer
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry_kit.dispatching.check_installed import check_installed
from dtensor_registry_kit.isolation import Note, Outcome, run_isolated, silent
from dtensor_registry_kit.judging.check import ON_WHOLE, SEARCHING, check
from dtensor_registry_kit.judging.findings import NO_ROWS, Finding, Report
from dtensor_registry_kit.judging.judge import describe_error
from dtensor_registry_kit.samples.choose import Samples, samples_for
from dtensor_registry_kit.samples.sample import Sample
from dtensor_registry_kit.simulation.distribute import on_grid
from dtensor_registry_kit.torch_private import OpOverload, takes_local_sizes
from dtensor_registry_kit.verification.targets import Target, entries_beneath, find_targets

State: TypeAlias = Literal["trusted", "WRONG", "not checked", "check failed"]
Key: TypeAlias = tuple[str, str]
"""Plugin and op."""

_DRAWS_OF_WHOLE_CALLS = 4
"""How many times as many placements are drawn where no row can be judged."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is tried of each rule.

    Attributes:
        samples: calls of each op.
        budget: ways of handing out the inputs of one call that the search for missing rows
            may try; 0 leaves it out.
        dispatched: calls of each op that also go through DTensor; 0 leaves that out.
        draws: drawn placements of the inputs of each of these, on each mesh.
        seed: of all that is drawn.
        seconds: after which the process that checks one rule is stopped.
        sizes: whether calls are tried in other sizes as well.
    """

    samples: int = 6
    budget: int = 120
    dispatched: int = 1
    draws: int = 2
    seed: int = 0
    seconds: float = 120.0
    sizes: bool = True


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome for one rule and one op.

    Attributes:
        op: name of the op.
        plugin: who contributes the rule.
        report: what was found, by ground truth and through DTensor.
        source: where the samples are from; empty if there were none.
        note: why nothing, or not all, could be checked.
        seconds: how long it took.
        failed: whether the check itself raised, which is a fault of this package.
    """

    op: str
    plugin: str
    report: Report
    source: str = ""
    note: str = ""
    seconds: float = 0.0
    failed: bool = False

    @property
    def state(self) -> State:
        """The outcome in a word."""
        if self.failed:
            return "check failed"
        if self.report.errors:
            return "WRONG"
        return "trusted" if self.report.is_trusted else "not checked"

    def __str__(self) -> str:
        samples = f"\n  samples: {self.source}" if self.source else ""
        note = f"\n  note: {self.note}" if self.note else ""
        return f"{self.report}{samples}{note}"


@dataclass(frozen=True, slots=True)
class Task:
    """One rule to verify, so written that another process can find it.

    Attributes:
        settings: what decides who takes part.
        patterns: what `find_targets` is asked for.
        key: which of its answers.
        options: how much is tried.
        samples: calls in place of the author's, or None.
    """

    settings: Settings
    patterns: tuple[str, ...]
    key: Key
    options: Options
    samples: tuple[Sample, ...] | None = None


def verify_target(
    target: Target,
    options: Options = Options(),
    given: Sequence[Sample] | None = None,
    note: Note = silent,
    *,
    beneath: Mapping[OpOverload, Entry] = MappingProxyType({}),
) -> Verified:
    """Verify one rule in this process.

    Args:
        target: the rule.
        options: how much is tried.
        given: calls in place of the author's.
        note: is called with what is about to be tried.
        beneath: rules of other ops that are installed, for its gradients.
    """
    began = time.monotonic()
    report = Report(target.name, target.owner, "", (), (), 0, 0)
    if target.op is None or target.problem:
        return Verified(target.name, target.plugin, report, note=target.problem)
    note("looking for samples")
    source = target.samples if given is None else (lambda: given)
    try:
        samples = samples_for(target.op, source, options.samples)
    except Exception as error:
        message = f"its samples cannot be had: {describe_error(error)}"
        return Verified(target.name, target.plugin, report, note=message)
    if target.whole_calls:
        report, of_torch = _by_whole_calls(target, samples, options, note, beneath)
        message = f"{NO_ROWS}: {target.whole_calls}"
        if of_torch:
            message += f"; left as in torch, where they are wrong too: {', '.join(of_torch)}"
        seconds = time.monotonic() - began
        return Verified(target.name, target.plugin, report, samples.source, message, seconds)
    assert target.rule is not None
    report = check(
        target.op,
        samples.calls,
        target.rule,
        owner=target.owner,
        schema_info=target.schema_info,
        allow_uneven_sharding=target.allow_uneven_sharding,
        allow_empty_pieces=target.allow_empty_pieces,
        budget=options.budget,
        seed=options.seed,
        by_pieces=not takes_local_sizes(target.op),
        sizes=options.sizes,
        note=note,
    )
    if options.dispatched:
        report = _with_dispatch(target, report, samples, options, note, beneath)
    seconds = time.monotonic() - began
    return Verified(target.name, target.plugin, report, samples.source, samples.note, seconds)


def verify(
    settings: Settings,
    patterns: Sequence[str] = (),
    options: Options = Options(),
    *,
    processes: int = 1,
    seconds: float | None = None,
    samples: Mapping[str, Sequence[Sample]] | None = None,
) -> tuple[list[Target], Iterator[Verified]]:
    """Verify many rules, in processes of their own.

    Args:
        settings: who takes part.
        patterns: whose rules, and for which ops; see `find_targets`.
        options: how much is tried of each.
        processes: how many run at a time.
        seconds: no rule is begun after that time.
        samples: calls in place of the author's, by op.

    Returns:
        What there is to verify, and the outcomes as they come. Rules that were not begun in
        time are among the first only.

    Raises:
        SettingsError: for a pattern that names nothing.

    >>> targets, outcomes = verify(Settings(allowed=()), ["torch:aten.neg.default"])
    >>> [target.name for target in targets]  # they run when `outcomes` is read
    ['aten.neg.default']
    """
    targets = find_targets(settings, patterns)
    found = samples or {}
    tasks = [
        Task(settings, tuple(patterns), s.key, options, _frozen(found.get(s.name))) for s in targets
    ]
    deadline = None if seconds is None else time.monotonic() + seconds
    return targets, _outcomes(tasks, {s.key: s for s in targets}, processes, deadline)


def verify_task(task: Task, note: Note) -> Verified:
    """Verify one rule in this process, which was started for it."""
    torch.set_num_threads(1)
    lookup = _Lookup(task.settings, task.patterns)
    target, beneath = _targets(lookup)[task.key], _beneath(lookup)
    return verify_target(target, task.options, task.samples, note, beneath=beneath)


def _outcomes(
    tasks: Sequence[Task], targets: Mapping[Key, Target], processes: int, deadline: float | None
) -> Iterator[Verified]:
    if not tasks:
        return
    outcomes: Iterator[Outcome[Task, Verified]] = run_isolated(
        verify_task,
        tasks,
        processes=processes,
        seconds_per_task=tasks[0].options.seconds,
        deadline=deadline,
    )
    for outcome in outcomes:
        again = more_careful(outcome)
        if outcome.result is not None:
            yield outcome.result
        elif again is not None:
            # Not left out where the time is over, or the crash would be lost.
            yield from _outcomes([again], targets, 1, None)
        else:
            yield lost(targets[outcome.task.key], outcome)


def more_careful(outcome: Outcome[Task, Verified]) -> Task | None:
    """Make a task to try again if what took its process down was no row.

    The search for further rows hands out pieces that nobody says may go together, and a sample
    in another size may be no call that its author would make. That a kernel does not check for
    such is no fault of the rule.
    """
    options = outcome.task.options
    if outcome.state != "died":
        return None
    if SEARCHING in outcome.message and options.budget:
        return replace(outcome.task, options=replace(options, budget=0))
    if ON_WHOLE in outcome.message and options.sizes:
        return replace(outcome.task, options=replace(options, sizes=False))
    return None


def lost(target: Target, outcome: Outcome[Task, Verified]) -> Verified:
    """Make an outcome of a process that was lost: what it was doing is the finding."""
    died = outcome.state == "died"
    finding = Finding("crash" if died else "untested", outcome.message)
    report = Report(target.name, target.owner, "", (finding,), (), int(died), 0)
    failed = outcome.state == "raised"
    return Verified(
        target.name, target.plugin, report, "", outcome.message, outcome.seconds, failed
    )


def _with_dispatch(
    target: Target,
    report: Report,
    samples: Samples,
    options: Options,
    note: Note,
    beneath: Mapping[OpOverload, Entry],
) -> Report:
    """Add what running through DTensor shows, with this rule in force.

    Gradients are other ops. What goes wrong is counted against a rule if it does so both where
    torch's rules decide these and where everything that is installed does: a fault elsewhere is
    not its own.
    """
    if any(finding.kind in ("raises", "malformed") for finding in report.errors):
        return report  # the host would refuse to run it
    calls = samples.calls[: options.dispatched]
    seen = _with_every_set_of_plugins(target, calls, options, note, beneath)
    return replace(
        report,
        findings=tuple(sorted((*report.findings, *seen.findings), key=lambda f: not f.is_error)),
        combinations=report.combinations + seen.combinations,
    )


def _by_whole_calls(
    target: Target,
    samples: Samples,
    options: Options,
    note: Note,
    beneath: Mapping[OpOverload, Entry],
) -> tuple[Report, list[str]]:
    """Judge a rule by all its samples on DTensors, with more drawn placements of their inputs.

    Returns:
        The report, and the calls that are wrong only as they are in torch alone: a rule that
        amends torch's own says nothing of these.
    """
    more = replace(options, draws=_DRAWS_OF_WHOLE_CALLS * options.draws)
    # An op that reads bits, or cuts off what follows the point, would show rounding as a fault.
    calls = [
        sample.changed(lambda _, tensor: on_grid(tensor), sample.origin, sample.role)
        for sample in samples.calls
    ]
    # With everything installed, for amendments rest on each other: alone, one that computes its
    # result from another op meets what torch has wrong there, and may never return.
    report = _dispatched(target, calls, more, note, beneath)
    report = replace(report, owner=target.owner, rule=str(target.rule or "torch's own, amended"))
    if target.rule is not None:
        return report, []
    shared = [found for found in report.errors if _is_so_in_torch(target, found, calls, options)]
    findings = tuple(found for found in report.findings if found not in shared)
    return replace(report, findings=findings), [found.about for found in shared]


def _is_so_in_torch(
    target: Target, found: Finding, calls: Sequence[Sample], options: Options
) -> bool:
    """Say whether torch alone shows a fault in the same words.

    Only that very call is made: torch may never return from others, which the rule mends.
    """
    assert target.op is not None
    inputs, _, ranks = found.about.removeprefix("inputs ").removesuffix(" ranks").rpartition(" on ")
    bare = check_installed(
        target.op,
        [sample for sample in calls if str(sample) == found.sample],
        [tuple(map(int, ranks.split("x")))],
        inputs=inputs,
        seed=options.seed,
    )
    return found.evidence in {one.evidence for one in bare.errors}


def _with_every_set_of_plugins(
    target: Target,
    calls: Sequence[Sample],
    options: Options,
    note: Note,
    beneath: Mapping[OpOverload, Entry],
) -> Report:
    """Run calls on DTensors; what is wrong only beside some other rules is no fault of this one."""
    seen = _dispatched(target, calls, options, note, {})
    if seen.errors and beneath and target.entry is not None:
        again = _dispatched(target, calls, options, note, beneath)
        seen = seen if again.errors else again
    return seen


def _dispatched(
    target: Target,
    calls: Sequence[Sample],
    options: Options,
    note: Note,
    beneath: Mapping[OpOverload, Entry],
) -> Report:
    assert target.op is not None
    with _in_force(target, beneath):
        return check_installed(
            target.op,
            calls,
            rule=target.rule,
            draws=options.draws,
            seed=options.seed,
            note=note,
        )


@contextmanager
def _in_force(target: Target, beneath: Mapping[OpOverload, Entry]) -> Iterator[None]:
    """Have an op decided by this rule, whatever else is installed; torch's by torch alone."""
    assert target.op is not None
    if target.entry is None:
        yield
        return
    entries = {**beneath, target.op: target.entry}
    layer = Layer(f"a check of {target.name}", height=3, entries=entries)
    LOAN.add(layer)
    try:
        yield
    finally:
        LOAN.remove(layer)


@dataclass(frozen=True, slots=True)
class _Lookup:
    settings: Settings = field(hash=False)
    patterns: tuple[str, ...]


@lru_cache(maxsize=4)
def _targets(lookup: _Lookup) -> dict[Key, Target]:
    return {s.key: s for s in find_targets(lookup.settings, lookup.patterns)}


@lru_cache(maxsize=4)
def _beneath(lookup: _Lookup) -> dict[OpOverload, Entry]:
    return entries_beneath(lookup.settings)


def _frozen(samples: Iterable[Sample] | None) -> tuple[Sample, ...] | None:
    return None if samples is None else tuple(samples)
