"""Prints the table of planted faults in docs/verification.md.

    python -m tests.mutation.table [EVERY]

EVERY leaves out all but every so many-th fault.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.mutation.equivalent import NOT_READ, SAME, USELESS, reason_of
from tests.mutation.trial import planted_faults, try_fault

COLUMNS = ("caught", SAME, NOT_READ, USELESS, "right", "OVERLOOKED")
HEADINGS = ("caught", "same rows", "not read", "of no use", "right", "overlooked")


def main() -> int:
    """Print the table; the exit code is the number of faults that were overlooked."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    began = time.process_time()
    counts: dict[str, Counter[str]] = {}
    right: dict[str, str] = {}
    for fault in planted_faults()[::every]:
        trial = try_fault(fault)
        reason = "caught" if trial.caught else reason_of(trial) or "OVERLOOKED"
        if reason not in COLUMNS:
            right[f"`{fault.target.name}`: {', '.join(f'`{row}`' for row in trial.planted)}"] = (
                reason
            )
            reason = "right"
        counts.setdefault(fault.kind, Counter())[reason] += 1
        if reason == "OVERLOOKED":
            print(f"{fault} was overlooked; it planted {trial.planted}", file=sys.stderr)
    total = sum(counts.values(), Counter())
    print(f"| fault | planted | {' | '.join(HEADINGS)} |")
    print(f"| --- | {' | '.join(['---'] * (len(HEADINGS) + 1))} |")
    for kind, found in [*sorted(counts.items()), ("all", total)]:
        cells = [str(found[column] or "") for column in COLUMNS]
        print(f"| {kind} | {found.total()} | {' | '.join(cells)} |")
    print()
    for row, reason in sorted(right.items()):
        print(f"- {row} is right: {reason}.")
    print(f"\n{time.process_time() - began:.0f} s of CPU time", file=sys.stderr)
    return total["OVERLOOKED"]


if __name__ == "__main__":
    sys.exit(main())
