"""Writes docs/parity.md from what `--json` wrote, one file for each version of torch.

python -m benchmarks.parity.page FILE [FILE...] > docs/parity.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.parity.reasons import REASONS
from benchmarks.parity.verdict import VERDICTS

INTRODUCTION = """\
# Never worse than torch

A program that runs right on bare torch runs right with the registry installed, with no more
collectives and no more bytes. `make parity` is the gate: it runs programs and calls on bare
torch, with `install()` as it is by default, and with `install()` and the fallbacks on in silence,
and compares each with one process that has no DTensor at all.

- **Programs** run on four gloo ranks, in processes that are forked for each way. A program that
  does not come to its end in time, or of which some ranks wait for others, hangs; the processes
  are ended and started anew.
- **Calls** are those of every op that torch answers (by a rule, a handler or a decomposition) and
  that torch's own samples (OpInfo) lead to, in place, with `out=` and over lists, too; with drawn
  placements on meshes (4,) and (2, 2), forward and backward. They run on simulated ranks, and
  those that are wrong or not as on bare torch run on gloo, too: that is what counts.

| verdict | what it means |
| --- | --- |
| same | the same outcome, the same collectives and bytes |
| better | bare torch refuses, hangs or is wrong; or moves more |
| dearer by a correction | right on both; more is moved without a row of torch's that is wrong |
| worse | refused or hanging where bare torch is right; or more collectives, or more bytes |
| silently wrong | other numbers than one process, without a word, whatever bare torch does |

Dearer by a correction is what costs no more once the plugin `corrections` is switched off: the
row that it leaves out gives other numbers than one process for some values, though not for these.

One of them again, with all details: `python -m benchmarks.parity --program NAME --all`, or
`--call ID --all`. A tenth of it runs in `make test`.

This page is written by `python -m benchmarks.parity.page`.
"""


def page(runs: Sequence[Mapping[str, Any]]) -> str:
    """Write the page of runs, each as `--json` writes it."""
    lines = [INTRODUCTION, "## Counts", ""]
    lines += [f"| torch | what ran | {' | '.join(VERDICTS)} | of the same, refused by both |"]
    lines += ["| --- " * (3 + len(VERDICTS)) + "|"]
    lines += [_counts(run) for run in runs]
    for verdict in reversed(VERDICTS[1:]):
        rows = [(run["torch"], each) for run in runs for each in run["found"]]
        rows = [(version, each) for version, each in rows if each["verdict"] == verdict]
        if rows:
            lines += ["", f"## {verdict.capitalize()}", "", *_table(rows)]
    return "\n".join([*lines, ""])


def with_reruns(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Let a later run of some calls or programs replace what an earlier one says of them."""
    found: list[Mapping[str, Any]] = []
    for run in runs:
        again = {each["name"]: each for each in run["found"]}
        for at, earlier in enumerate(found):
            names = {each["name"] for each in earlier["found"]}
            if earlier["torch"] == run["torch"] and again.keys() <= names:
                both = [again.get(each["name"], each) for each in earlier["found"]]
                count = earlier.get("again", 0) + len(again)
                found[at] = {**earlier, "found": both, "again": count}
                break
        else:
            found.append(run)
    return found


def _counts(run: Mapping[str, Any]) -> str:
    found = run["found"]
    counts = [sum(each["verdict"] == verdict for each in found) for verdict in VERDICTS]
    kinds = {kind: sum(each["kind"] == kind for each in found) for kind in ("call", "program")}
    ran = ", ".join(f"{count} {kind}s" for kind, count in kinds.items() if count)
    share = "" if run["every"] == 1 else f" (one in {run['every']})"
    share += f", {run['again']} of them once more, on later code" if "again" in run else ""
    refused = sum(
        each["verdict"] == "same" and each["ways"]["bare"]["outcome"] != "right" for each in found
    )
    return f"| {run['torch']} | {ran}{share} | {' | '.join(map(str, [*counts, refused]))} |"


def _table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """List programs by name, and calls by op; alike outcomes together."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for version, each in rows:
        name = each["name"].split("/")[0]
        bare, ours = each["ways"]["bare"], _telling(each)
        group = (f"{each['kind']} `{name}`", _brief(bare, ours), _brief(ours, bare))
        groups.setdefault(group, []).append((version, each["name"]))
    yield "| what | bare torch | with the registry | on torch | why |"
    yield "| --- | --- | --- | --- | --- |"
    for (what, bare, ours), members in sorted(groups.items()):
        names = dict.fromkeys(name for _, name in members)
        versions = ", ".join(dict.fromkeys(version for version, _ in members))
        first = next(iter(names))
        count = f" ({len(names)}, the first `{first}`)" if "/" in first else ""
        yield f"| {what}{count} | {bare} | {ours} | {versions} | {_reason(first)} |"


def _telling(each: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pick the way that a verdict is about: the best where it is better, else the worst."""
    order = ("right", "refused", "hang", "wrong")
    ours = [seen for way, seen in each["ways"].items() if way != "bare"]
    pick = min if each["verdict"] == "better" else max
    return pick(ours, key=lambda seen: (order.index(seen["outcome"]), seen["bytes"]))


def _brief(seen: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say what became of a run; what it moved only where the other is right, too."""
    if seen["outcome"] == "right" and other["outcome"] == "right":
        count = sum(seen["collectives"].values())
        return f"right, {count} collectives, {seen['bytes']} bytes"
    if seen["outcome"] == "refused":
        return f"refused: {seen['told'].removeprefix('it raises ')[:90]}".replace("|", "/")
    return str(seen["outcome"])


def _reason(name: str) -> str:
    found = (why for glob, why in REASONS.items() if fnmatchcase(name, glob))
    return next(found, "")


if __name__ == "__main__":
    print(page(with_reruns([json.loads(Path(name).read_text()) for name in sys.argv[1:]])), end="")
