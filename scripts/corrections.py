"""Write docs/corrections.md from the table of the plugin `corrections`.

python scripts/corrections.py > docs/corrections.md
"""

from __future__ import annotations

from collections.abc import Iterator

from dtensor_registry_corrections.correction import Correction
from dtensor_registry_corrections.rows import CORRECTIONS

HEAD = """\
# Rows of torch's own rules that are wrong

The plugin [corrections](../plugins/corrections/README.md) asks torch's own rule and leaves these
rows out. A row says what an op does on one mesh dim, `outputs <- inputs`. A counterexample is a
call on two ranks; `200 and 100` is what they hold of a partial tensor, four elements of it.
`tests/corrections` runs each of them on simulated ranks: bare torch gives another number than one
process does, or raises where it says so, and with the correction the number is the same. This page
is written by `scripts/corrections.py`.

| op | rows | wrong | counterexample | torch |
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
    yield from sorted(map(_line, CORRECTIONS))
    yield TAIL.rstrip()


def _line(correction: Correction) -> str:
    ops = ", ".join(f"`{op}`" for op in correction.ops)
    if correction.reduces:
        ops += " *"
    shown = "; ".join(dict.fromkeys(map(str, correction.examples)))
    if not correction.examples:
        shown = "none: gloo does not reduce averages of integers"
    if any(example.refused for example in correction.examples):
        shown += " (bare torch raises)"
    cells = (
        ops,
        "; ".join(f"`{row}`" for row in correction.rows),
        f"{correction.condition}: {correction.because}",
        shown,
        f"{correction.since} to {correction.until}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(page()))
