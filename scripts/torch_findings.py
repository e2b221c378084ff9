"""Turn what `verify torch --json` found into the page docs/torch-findings.md.

dtensor-registry verify torch --samples 2 --jobs 2 --json > found.json
python scripts/torch_findings.py found.json > docs/torch-findings.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

TITLES = {
    "unsound": "Rows that give other numbers",
    "backward": "Rows that give other gradients",
    "dispatch": "Calls that go wrong through DTensor",
    "crash": "Rows whose pieces the op does not take",
    "cache key": "Arguments that are not in the cache key",
}
LOST = "looking for samples"
"""The process died before a rule was tried: a fault of a kernel, not of the rule."""


def page(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    rules = report["rules"]
    states = Counter(rule["state"] for rule in rules)
    tried = sum(rule["combinations"] for rule in rules)
    yield f"# What verification finds in torch {report['torch']}"
    yield ""
    yield f"`dtensor-registry verify torch --samples 2`: of torch's {len(rules)} single-dim rules"
    yield f"{states['trusted']} are trusted, {states['not checked']} could not be checked, and"
    yield f"{states['WRONG']} have findings, after {tried:,} combinations. This page is written"
    yield "by `scripts/torch_findings.py` and lists whatever came out. A call that was"
    yield "generated from the schema may be one that the op is not meant for: such a row counts"
    yield "above, and is not listed."
    yield ""
    yield "Rows were judged piece by piece, by the host's expansion of that day. What programs"
    yield "confirm is in [corrections](corrections.md), version by version. Two kinds below are not"
    yield "torch's fault: list forms that write (bare torch is right; the host lost a tie, since"
    yield "mended), and gradients of pending extremes (right in programs on two gloo ranks, 2.13.0"
    yield "and 2.15.0)."
    found = [
        (finding["kind"], rule["op"], finding)
        for rule in rules
        for finding in rule["findings"]
        if finding["is_error"] and is_told(rule, finding)
    ]
    for kind, title in TITLES.items():
        mine = [(op, finding) for k, op, finding in found if k == kind]
        yield from ("", f"## {title}", "")
        if kind == "cache key":
            yield from keys(mine)
            continue
        yield "| op | row or inputs | call | seen |"
        yield "| --- | --- | --- | --- |"
        for op, finding in mine:
            cells = (op, finding["about"], finding["sample"], finding["evidence"])
            yield f"| {' | '.join(cell(text) for text in cells)} |"


def is_told(rule: dict[str, Any], finding: dict[str, Any]) -> bool:
    """Leave out what a generated call shows of a row, and what ended before a row was tried."""
    if finding["kind"] in ("unsound", "backward", "crash") and rule["samples"] == "generated":
        return False
    return LOST not in finding["evidence"]


def keys(found: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Tell the findings that are all alike in one sentence."""
    alike = sorted({op for op, finding in found if "given by keyword" in finding["evidence"]})
    yield f"{len(alike)} overloads take tensors by keyword, while torch's key has none of their"
    yield "keywords: a cached decision is used again for another placement of `out`:"
    yield f"{', '.join(f'`{op}`' for op in alike)}."
    others = [f"- `{o}`: {cell(f['evidence'])}" for o, f in found if o not in alike]
    if others:
        yield from ("", *others)


def cell(text: str) -> str:
    """Shorten a text and keep it from ending its cell."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= 140 else f"{line[:139]}…"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(page(json.load(file))))
