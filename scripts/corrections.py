"""Write docs/corrections.md from the table of the plugin `corrections`.

python scripts/corrections.py > docs/corrections.md
"""

from __future__ import annotations

from collections.abc import Iterator

from dtensor_registry import Counterexample, SingleDimStrategy
from dtensor_registry_corrections.correction import Correction
from dtensor_registry_corrections.rows import CORRECTIONS
from dtensor_registry_corrections.rules import STRATEGIES

HEAD = """\
# What torch's own rules have wrong

The plugin [corrections](../plugins/corrections/README.md) mends torch call by call. This page is
written by `scripts/corrections.py` from its entries. A counterexample is a call on two ranks,
if it does not say more:
`uint8 200 and 100` is what they hold of a partial tensor, four elements of it; `float64[3,2]` is
a tensor of that shape that holds 1, 2, 3, .... `tests/corrections` runs each of them on simulated
ranks, on each version of torch: bare torch gives another number than one process does, or raises
where it says so, in the versions that the last column names (of 2.13.0, 2.14.1 and 2.15.0), and
with the correction the number is the same. `dtensor-registry doctor --corrections` runs them on
the torch at hand and lists those that it has right.

## Rows

torch's own rule is asked, and these rows are left out. A row says what an op does on one mesh dim,
`outputs <- inputs`.

| op | rows | wrong | counterexample | torch |
| --- | --- | --- | --- | --- |"""

CALLS = """
## Calls

What is wrong here is no row: torch has a handler, a rule for the whole mesh or a decomposition.
The call is moved first, computed from other ops, run by rows of the plugin's own, or refused.

| op | wrong | placements | counterexample | torch |
| --- | --- | --- | --- | --- |"""

TAIL = """\

`linalg_cross` also gets `dim` into its cache key: torch lets a call with another `dim` have the
decision of the first.

In torch 2.13 the ops marked with * have a rule for the whole mesh instead of rows, which is wrong
for the same calls: their partial operands are reduced before torch is asked, in every version.

## What is not left out, and why

- **Gradients.** Run in pieces, as `verify` does, `maximum`, `minimum`, `fmax`, `fmin`, `clamp_min`
  and `clamp_max` give twice the gradient for rows such as `P(max) <- P(max), R`. DTensor
  differentiates the whole op, not the pieces: on two gloo ranks the gradients of all of them are
  those of one process (torch 2.13.0 and 2.15.0).
- **In-place and `out=` forms**, where a row is wrong only for integers that wrap around or for nan:
  what is written to cannot be moved, so that without the row the call would be refused, also where
  its numbers are harmless. `threshold_` is wrong for everyday numbers, and is refused.
- **64-bit integers**, whose sums wrap around beyond 9e18 only.
- **`bucketize`** of a minimum with nan among it; its row for nan-free numbers is right.
- **Infinities**: `add`, `mul` and `div` may give nan where parts are infinite, or are divided by
  zero, and the whole is not.
- **Lists that are written to** (`_foreach_add_` with a partial argument, `_foreach_neg_`): torch's
  rule has rows there that torch then does not use, since the element would change its placement.
- `_scaled_mm` of partial operands of 8 bits: what the whole would be, no process group of the CPU
  computes.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    yield from sorted(map(_row_line, CORRECTIONS))
    yield CALLS
    yield from sorted(line for strategy in STRATEGIES for line in _call_lines(strategy))
    yield TAIL.rstrip()


def _row_line(correction: Correction) -> str:
    ops = ", ".join(f"`{op}`" for op in correction.ops)
    if correction.reduces:
        ops += " *"
    shown = "; ".join(dict.fromkeys(map(_shown, correction.examples)))
    versions = "; ".join(dict.fromkeys(map(_versions, correction.examples)))
    return _cells(
        ops,
        "; ".join(f"`{row}`" for row in correction.rows),
        f"{correction.condition}: {correction.because}",
        shown or "none: gloo does not reduce averages of integers",
        versions or "not run",
    )


def _call_lines(strategy: SingleDimStrategy) -> Iterator[str]:
    """Yield a line for each op and call, of what is no correction of rows."""
    for shown in strategy.shows:
        if "<-" not in shown.row:
            ops = [op for op in strategy.names if shown.is_of(op)]
            because = shown.because or getattr(strategy.rule, "because", "")
            named = ", ".join(f"`{op}`" for op in ops)
            yield _cells(named, because, f"`{shown.row}`", _shown(shown), _versions(shown))


def _shown(shown: Counterexample) -> str:
    told = str(shown) if shown.ranks == 2 else f"{shown} on {shown.ranks} ranks"
    if shown.hangs:
        return f"{told} (bare torch never returns)"
    return f"{told} (bare torch raises)" if shown.raises else told


def _versions(shown: Counterexample) -> str:
    return shown.since if shown.since == shown.until else f"{shown.since} to {shown.until}"


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(page()))
