"""How long the search for the cheapest expansion takes, by rule and number of mesh dims.

    python -m benchmarks.expansion
    python -m benchmarks.expansion --json > expansion.json

Every call has random placements from R, S(d) and P(sum), drawn from a seed, on a mesh of 2
ranks per mesh dim and 8 devices per host. Rows are filled beforehand, as in a call like an
earlier one. A call counts with the fastest of its runs, a line with the median of its calls.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dtensor_registry.placements import REPLICATE, Partial, Placement, Shard, parse_placements
from dtensor_registry.planner import Problem, TensorInput, Topology, cheapest

_ITEMSIZE = 4

# Shapes of the inputs, and the rows: the output first, then every input.
_RULES: dict[str, tuple[tuple[tuple[int, ...], ...], str]] = {
    "mm": (
        ((4096, 4096), (4096, 4096)),
        """
        R, R, R
        S(0), S(0), R
        P, S(1), S(0)
        S(1), R, S(1)
        P, P, R
        P, R, P
        P(avg), P(avg), R
        P(avg), R, P(avg)
        """,
    ),
    "add": (
        ((4096, 4096), (4096, 4096)),
        """
        R, R, R
        S(0), S(0), S(0)
        S(1), S(1), S(1)
        P, P, P
        P(avg), P(avg), P(avg)
        P(avg), P(avg), R
        P(avg), R, P(avg)
        P(max), P(max), R
        P(max), R, P(max)
        P(min), P(min), R
        P(min), R, P(min)
        """,
    ),
    "bmm": (
        ((64, 1024, 1024), (64, 1024, 1024)),
        """
        R, R, R
        S(0), S(0), S(0)
        S(1), S(1), R
        P, S(2), S(1)
        S(2), R, S(2)
        P, P, R
        P, R, P
        P(avg), P(avg), R
        P(avg), R, P(avg)
        """,
    ),
    "5 inputs": (
        ((64, 4096, 512),) * 5,
        """
        R, R, R, R, R, R
        S(0), S(0), S(0), S(0), S(0), S(0)
        S(1), S(1), S(1), S(1), S(1), S(1)
        S(2), S(2), S(2), S(2), S(2), S(2)
        S(0), S(0), R, R, R, R
        S(1), S(1), R, S(0), R, R
        S(2), R, S(0), S(1), R, S(0)
        P, S(2), S(0), R, R, R
        S(0), S(0), S(0), R, S(0), R
        S(1), R, S(1), S(1), R, S(1)
        P, P, R, R, R, R
        S(2), S(2), S(2), R, R, S(0)
        """,
    ),
}


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured of one rule on meshes of one kind; times in milliseconds."""

    rule: str
    inputs: int
    rows: int
    mesh_ndim: int
    calls: int
    median_ms: float
    p90_ms: float
    max_ms: float
    median_nodes: float
    max_nodes: int
    combinations: int


def calls(rule: str, mesh_ndim: int, count: int, seed: int) -> Iterator[Problem]:
    """Draw random calls of a rule."""
    rng = random.Random(f"{seed} {rule} {mesh_ndim}")
    shapes, text = _RULES[rule]
    rows: Any = tuple(parse_placements(line) for line in text.strip().splitlines())
    topology = Topology.assumed((2,) * mesh_ndim, devices_per_host=8)
    for _ in range(count):
        inputs = tuple(
            TensorInput(
                shape,
                (tuple(_placement(rng, len(shape)) for _ in range(mesh_ndim)),),
                nbytes=_ITEMSIZE * math.prod(shape),
            )
            for shape in shapes
        )
        yield Problem(topology, rows, 1, inputs)


def _placement(rng: random.Random, rank: int) -> Placement:
    options: list[Placement] = [REPLICATE, *map(Shard, range(rank)), Partial("sum")]
    return rng.choice(options)


def measure(rule: str, mesh_ndim: int, count: int, runs: int, seed: int) -> Line:
    """Search each call `runs` times."""
    fastest: list[float] = []
    nodes: list[int] = []
    for problem in calls(rule, mesh_ndim, count, seed):
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            choice = cheapest(problem)
            times.append((time.perf_counter() - start) * 1e3)
        assert choice is not None
        fastest.append(min(times))
        nodes.append(choice.nodes)
    fastest.sort()
    shapes, text = _RULES[rule]
    rows = len(text.strip().splitlines())
    return Line(
        rule,
        len(shapes),
        rows,
        mesh_ndim,
        count,
        statistics.median(fastest),
        fastest[math.ceil(0.9 * count) - 1],
        fastest[-1],
        statistics.median(nodes),
        max(nodes),
        rows**mesh_ndim,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.expansion", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--calls", type=int, default=40, help="random calls per line")
    parser.add_argument("--runs", type=int, default=5, help="runs per call; the fastest counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-mesh-ndim", type=int, default=6)
    given = parser.parse_args(arguments)
    if not given.json:
        print("rule      rows  mesh   median ms   p90 ms   max ms   nodes   combinations")
    lines = []
    for rule in _RULES:
        for mesh_ndim in range(1, given.max_mesh_ndim + 1):
            line = measure(rule, mesh_ndim, given.calls, given.runs, given.seed)
            lines.append(line)
            if not given.json:
                print(
                    f"{line.rule:<9} {line.rows:>4}  {line.mesh_ndim}-D"
                    f"  {line.median_ms:>10.3f}  {line.p90_ms:>7.3f}  {line.max_ms:>7.3f}"
                    f"  {line.median_nodes:>6g}  {line.combinations:>13,}",
                    flush=True,
                )
    if given.json:
        told = {"python": platform.python_version(), "machine": platform.machine()}
        print(json.dumps({**told, "lines": [asdict(line) for line in lines]}, indent=2))


if __name__ == "__main__":
    main()
