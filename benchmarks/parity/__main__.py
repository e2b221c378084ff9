"""The gate "never worse than torch".

python -m benchmarks.parity                     everything (`make parity`)
python -m benchmarks.parity --program tp-block  one program, or some ('fsdp*'), and no calls
python -m benchmarks.parity --call aten.mm.default/0/2x2/1        one call, and no programs
python -m benchmarks.parity --call 'aten.mm.default'              all calls of an op
python -m benchmarks.parity --tenth             a tenth of it, always the same
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.parity.programs import PROGRAMS
from benchmarks.parity.run_programs import run_programs
from benchmarks.parity.verdict import VERDICTS, Compared
from benchmarks.parity.ways import WAYS


def chosen_programs(globs: Sequence[str], every: int) -> list[str]:
    """List programs by globs; of these every so many."""
    names = [name for name in PROGRAMS if any(fnmatchcase(name, glob) for glob in globs)]
    return names[::every]


@contextmanager
def steps(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal, and a line now and then elsewhere."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        done = itertools.count(1)

        def step() -> None:
            bar.advance(task)
            if not console.is_terminal and (number := next(done)) % 100 == 0:
                console.print(f"{what}: {number} of {total or 'all'}")

        yield step


def last_line(found: Sequence[Compared]) -> str:
    """Count what came out."""
    kinds = Counter(each.kind for each in found)
    counts = Counter(each.verdict for each in found)
    told = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS)
    return f"parity: {kinds['call']} calls, {kinds['program']} programs: {told}"


def main() -> int:
    """Run, print every difference, and count; 1 if anything is worse or silently wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parity",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--program", nargs="+", metavar="GLOB", help="programs of these names")
    parser.add_argument("--call", nargs="+", metavar="ID", help="calls, or all calls of ops")
    parser.add_argument("--only", choices=("calls", "programs"), help="leave the others out")
    parser.add_argument("--tenth", action="store_const", const=10, dest="every", default=1)
    parser.add_argument("--every", type=int, metavar="N", help="every Nth program and op")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:3])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes down")
    parser.add_argument("--all", action="store_true", help="print also what is the same")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the ranks, which share few cores
    ways = [way for way in WAYS if way in chosen.ways or way == "bare"]
    found: list[Compared] = []

    def note(each: Compared) -> None:
        found.append(each)
        if each.verdict != "same" or chosen.all:
            print(each, flush=True)

    if (chosen.program or not chosen.call) and chosen.only != "calls":
        programs = [
            PROGRAMS[name] for name in chosen_programs(chosen.program or ["*"], chosen.every)
        ]
        with steps("programs", len(programs)) as step:
            for each in run_programs(programs, ways, step):
                note(each)
    if (chosen.call or not chosen.program) and chosen.only != "programs":
        from benchmarks.parity.run_calls import draw_calls, run_calls

        with steps("drawing calls", None) as step:
            calls = draw_calls(chosen.call or (), chosen.every, step)
        with steps("calls", len(calls)) as step:
            for each in run_calls(calls, ways, step):
                note(each)
    if not found:
        raise SystemExit("parity: no program and no call is named so; nothing was compared")
    bad = [each for each in found if each.verdict in ("worse", "silently wrong")]
    for each in bad:
        print(f"{each.verdict}: --{each.kind} {each.name}")
    if chosen.json:
        written = {
            "torch": version("torch"),
            "every": chosen.every,
            "found": [each.as_json() for each in found],
        }
        chosen.json.write_text(json.dumps(written, indent=1) + "\n")
    print(last_line(found))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
