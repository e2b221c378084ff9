"""Our rows beside torch's own, for every op of the pointwise and matrix tables that torch rules.

    python -m benchmarks.rule_coverage                     # all: about ten minutes
    python -m benchmarks.rule_coverage 'aten.add*'         # some ops
    python -m benchmarks.rule_coverage --table             # what docs/rules.md lists

Rows are compared on sample calls: other flags, ranks, dtypes and broadcasting. A row of torch's
that we lack is run in pieces until it is refuted, or is counted as missing; a row that torch lacks
must give what the whole run gives.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch._prims  # registers torch.ops.prims

from benchmarks.counterexamples import counterexample
from dtensor_registry.rules import TensorMeta, tensor_inputs
from dtensor_registry.rules.metadata import fill
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry.settings import Settings
from dtensor_registry.torch_patch.catalog import SINGLE_DIM
from dtensor_registry.torch_patch.table_patcher import LEDGER
from dtensor_registry.torch_patch.torch_rules import as_plugin_rule
from dtensor_registry_kit import Sample
from dtensor_registry_kit.judging.backward import judge_backward
from dtensor_registry_kit.judging.judge import check_row
from dtensor_registry_kit.samples.choose import samples_for
from dtensor_registry_kit.samples.sample import telling, variants
from dtensor_registry_kit.simulation.reference_run import run_reference
from dtensor_registry_kit.verification.targets import Target, find_targets

PLUGINS = ("pointwise", "matrix")
RANKS = (2, 3)


@dataclass
class Compared:
    """What was found of one op.

    Attributes:
        ours: distinct rows of ours, over all samples.
        theirs: of torch's.
        missing: rows of torch's that we lack and that nothing refutes.
        extra: rows that torch lacks.
        wrong: those of them that are refuted, and how.
        unsound: rows of torch's that are refuted, and how.
    """

    op: str
    plugin: str
    samples: int = 0
    ours: set[str] = field(default_factory=set)
    theirs: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    extra: set[str] = field(default_factory=set)
    wrong: dict[str, str] = field(default_factory=dict)
    unsound: dict[str, str] = field(default_factory=dict)


def subjects(glob: str) -> Iterator[tuple[Target, Callable[..., Any]]]:
    """Find the ops of the plugins for which torch has a single-dim rule, and that rule."""
    for subject in find_targets(Settings(), PLUGINS):
        if subject.op is None or not fnmatchcase(subject.name, glob):
            continue
        info = LEDGER.original(SINGLE_DIM, subject.op)
        if info is not None:
            yield subject, as_plugin_rule(subject.op, info.func)


def compare(subject: Target, theirs: Callable[..., Any], limit: int) -> Compared:
    """Compare the rows for one op."""
    found = Compared(subject.name, subject.plugin)
    assert subject.rule is not None
    for sample in samples_for(subject.op, subject.samples, limit).calls:
        found.samples += 1
        args, kwargs = _described(sample)
        ours = _shown(sample, subject.rule(subject.op, args, kwargs))
        try:
            torchs = _shown(sample, theirs(subject.op, args, kwargs))
        except Exception:
            torchs = {}  # torch's rule does not take the call
        found.ours |= set(ours)
        found.theirs |= set(torchs)
        for shown in set(torchs) - set(ours) - found.missing - set(found.unsound):
            told = _refuted(subject, sample, torchs[shown]) or counterexample(subject.name, shown)
            if told:
                found.unsound[shown] = told
            elif not _is_void(sample, torchs[shown]):
                found.missing.add(shown)
        for shown in set(ours) - set(torchs) - found.extra:
            found.extra.add(shown)
            told = _refuted(subject, sample, ours[shown])
            if told:
                found.wrong[shown] = told
    found.missing -= set(found.unsound)
    return found


def _described(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    metas = [TensorMeta(tuple(t.shape), t.stride(), t.dtype) for t in sample.inputs]
    return fill(sample.args, sample.kwargs, metas)


def _shown(sample: Sample, rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    width = len(tensor_inputs(sample.args, sample.kwargs))
    return {show_row(row, width): row for row in rows if not _is_replicate(row)}


def _is_replicate(row: Sequence[Any]) -> bool:
    return all(entry is None or str(entry) == "R" for entry in row)


def _is_void(sample: Sample, row: Sequence[Any]) -> bool:
    """Say whether no tensor of such a dtype can be what a row says: complex numbers have no order.

    An average of integers is rounded at each mesh dim anew, so that it is no one number.
    """
    for tensor, entry in zip(sample.inputs, row[len(row) - len(sample.inputs) :], strict=True):
        kind = getattr(entry, "reduce_op", "")
        ordered = kind in ("max", "min")
        is_whole = not (tensor.is_floating_point() or tensor.is_complex())
        if (ordered and tensor.is_complex()) or (kind == "avg" and is_whole):
            return True
        if kind == "sum" and tensor.dtype == torch.bool:
            return True
    return False


def _refuted(subject: Target, sample: Sample, row: Sequence[Any]) -> str:
    """Say how a call of this kind shows that a row is wrong; empty if none does."""
    assert subject.op is not None
    for call in _calls(sample):
        for ranks in RANKS:
            # A call that the op itself does not take is `untested`.
            verdict = check_row(subject.op, call.args, call.kwargs, row, ranks)
            if verdict.is_wrong:
                return f"{call}, on {ranks} ranks: {verdict.evidence}"
        if call.role == "drawn" and verdict.outcome == "sound":
            whole = run_reference(subject.op, call.args, call.kwargs)
            verdict = judge_backward(whole, row, 2)
            if verdict.is_wrong:
                return f"{call}, on 2 ranks: {verdict.evidence}"
    return ""


def _calls(sample: Sample) -> Iterator[Sample]:
    try:
        yield from variants(sample, sizes=False)
        yield from telling(sample)
    except NotImplementedError:
        return  # numbers of eight bits cannot be drawn


def main() -> int:
    """Print the comparison; 1 if a valid row is missing or an extra one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("glob", nargs="?", default="*")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--table", action="store_true", help="print the table of docs/rules.md")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = []
    for subject, theirs in subjects(chosen.glob):
        found.append(compare(subject, theirs, chosen.samples))
        if not chosen.table and (found[-1].missing or found[-1].wrong):
            print(found[-1], file=sys.stderr, flush=True)
    if chosen.table:
        print(table(found))
    else:
        print(summary(found))
    return int(any(each.missing or each.wrong for each in found))


def summary(found: Sequence[Compared]) -> str:
    """Write how many rows there are, per plugin."""
    lines = [f"{'plugin':12}{'ops':>6}{'calls':>7}{'ours':>7}{'torch':>7}{'missing':>9}"]
    lines[0] += f"{'extra':>7}{'wrong':>7}{'unsound in torch':>18}"
    for plugin in PLUGINS:
        mine = [each for each in found if each.plugin == plugin]
        counts = [
            sum(len(getattr(each, name)) for each in mine)
            for name in ("ours", "theirs", "missing", "extra", "wrong", "unsound")
        ]
        line = f"{plugin:12}{len(mine):>6}{sum(each.samples for each in mine):>7}"
        widths = (7, 7, 9, 7, 7, 18)
        line += "".join(f"{n:>{w}}" for n, w in zip(counts, widths, strict=True))
        lines.append(line)
    return "\n".join(lines)


def table(found: Sequence[Compared]) -> str:
    """List rows of torch's that are wrong, each with a call that shows it; same rows together."""
    lines = ["| op | row of torch's | what shows that it is wrong |", "| --- | --- | --- |"]
    for each in sorted(found, key=lambda each: each.op):
        for row, told in sorted(each.unsound.items()):
            lines.append(f"| `{each.op}` | `{row}` | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
