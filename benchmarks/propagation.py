"""What propagation costs with the registry and without, in one run of alternating turns.

    python -m benchmarks.propagation                 # everything; some minutes
    python -m benchmarks.propagation --quick         # a look, too short to believe
    python -m benchmarks.propagation --json FILE --plot FILE.png

`whole decision` is all that torch's propagator does for an op and shapes that it has met, in
placements that it has not decided yet, fake shape inference included; with `new shapes`, it
has met nothing of the kind.
`expansion` is the part from an op's rule to its choice of placements, `search alone` the
registry's search within that. Every call has placements drawn from a seed, and both sides
decide the same calls, in turn, with no decision cached. The registry adopts torch's own rules
and has no plugins, so that both expand the same rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.cases import MESHES, RANKS, subjects
from benchmarks.figure import Figure, table
from benchmarks.measure import Switch, decisions, hot_dispatch
from benchmarks.plot import draw
from benchmarks.startup import first_step, install_time

SECTIONS = ("decisions", "hot", "install", "step")


def figures(sections: Sequence[str], ops: Sequence[str], quick: bool) -> Iterator[Figure]:
    """Measure everything asked for, each figure as soon as it is there."""
    if "install" in sections:
        yield from install_time(runs=1 if quick else 7)
    dist.init_process_group("fake", rank=0, world_size=RANKS)
    switch = Switch()
    if "hot" in sections:
        yield from hot_dispatch(switch, blocks=2 if quick else 40, calls=50 if quick else 1000)
    if "decisions" in sections:
        chosen = [subject for subject in subjects() if subject.name in ops]
        for subject in chosen[:: 4 if quick else 1]:  # quick: the first and the last
            for ndim in (1, 2) if quick else MESHES:
                yield from decisions(subject, ndim, switch, runs=2 if quick else 25, seconds=60)
    dist.destroy_process_group()
    if "step" in sections:
        yield from first_step((2,) if quick else (2, 2, 2), runs=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table with the targets."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.propagation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few runs, on small meshes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    names = [subject.name for subject in subjects()]
    parser.add_argument("--ops", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--plot", type=Path, metavar="FILE", default=Path("propagation.png"))
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")
    measured: list[Figure] = []
    for figure in figures(given.only, given.ops, given.quick):
        measured.append(figure)
        print(f"  {figure.what}, {figure.mesh_ndim}-D", flush=True)
    print(table(measured))
    if given.json is not None:
        told = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "quick": given.quick,
            "figures": [asdict(figure) for figure in measured],
        }
        given.json.write_text(json.dumps(told, indent=2) + "\n")
    if "decisions" in given.only:
        print(draw(measured, given.plot))


if __name__ == "__main__":
    main()
