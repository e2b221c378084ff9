"""Every adopted op beside bare torch: the same answers, or differences with a known reason.

`python -m tests.adoption.comparison` prints the tally of the long run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch.distributed as dist
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._op_schema import OpSchema

import dtensor_registry as dr
from dtensor_registry.settings import Settings
from tests.adoption.calls import Call, Calls, quiet, record
from tests.adoption.decisions import decide, place, specs
from tests.adoption.differences import LOST, Case, decomposed, why
from tests.adoption.variants import related

RANKS = 8
MESHES = ((4,), (2, 2), (2, 2, 2))


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to compare.

    Attributes:
        samples: of torch's samples for each operator, and of calls for each op.
        draws: placements drawn for each call, by mesh.
        share: of the ops that are compared on the last mesh, where bare torch is slow.
    """

    samples: int
    draws: tuple[int, int, int]
    share: float


SHORT = Effort(samples=2, draws=(1, 1, 1), share=0.1)
LONG = Effort(samples=8, draws=(4, 3, 1), share=1.0)
DECOMPOSED_SHORT = Effort(samples=1, draws=(1, 0, 0), share=0.0)
DECOMPOSED_LONG = Effort(samples=2, draws=(2, 2, 0), share=0.0)
"""Bare torch traces each decomposition once for each combination of placements."""


@dataclass
class Tally:
    """What came out.

    Attributes:
        wanted: how many ops there are to compare.
        ops: those that were compared.
        compared: how many cases by mesh shape.
        undecided: cases that neither decides.
        broken: cases that only torch decides, without losing a write.
        explained: differences by reason.
        unexplained: all other differences.
    """

    wanted: int
    ops: set[OpOverload] = field(default_factory=set)
    compared: Counter[tuple[int, ...]] = field(default_factory=Counter)
    undecided: int = 0
    broken: list[Case] = field(default_factory=list)
    explained: dict[str, list[Case]] = field(default_factory=dict)
    unexplained: list[Case] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many cases were compared."""
        return sum(self.compared.values())

    def add(self, case: Case) -> None:
        """Count one case."""
        self.ops.add(case.call.op)
        given = specs((case.schema.args_schema, case.schema.kwargs_schema))
        self.compared[tuple(given[0].mesh.shape)] += 1
        if case.torch.error and case.adopted.error:
            self.undecided += 1
        elif case.adopted.error and why(case) != LOST:
            self.broken.append(case)
        elif not case.torch.same(case.adopted):
            reason = why(case)
            if reason is None:
                self.unexplained.append(case)
            else:
                self.explained.setdefault(reason, []).append(case)

    def __str__(self) -> str:
        meshes = ", ".join(f"{count} on {mesh}" for mesh, count in self.compared.items())
        lines = [
            f"{len(self.ops)} of {self.wanted} ops, {self.total} cases: {meshes}",
            f"{self.undecided} decided by neither, {len(self.broken)} only by bare torch",
        ]
        for reason, cases in self.explained.items():
            ops = sorted({str(case.call.op) for case in cases})
            lines.append(f"{len(cases)} differ: {reason} ({', '.join(ops)})")
        lines.append(f"{len(self.unexplained)} differ for no known reason")
        return "\n".join([*lines, *map(str, self.unexplained[:10]), *map(str, self.broken[:10])])


def adopted() -> list[OpOverload]:
    """List the ops that torch rules on one mesh dim, by name."""
    return sorted(DTensor._op_dispatcher.sharding_propagator.op_single_dim_strategy_funcs, key=str)


def compare(ops: Sequence[OpOverload], known: Calls, effort: Effort) -> Tally:
    """Decide calls both ways: all of them by bare torch, then all of them adopted."""
    meshes = [init_device_mesh("cpu", shape) for shape in MESHES]
    cases = [
        (call, schema)
        for op in ops
        for call in known.get(op, [])[: effort.samples]
        for schema in _placed(call, meshes, effort)
    ]
    tally = Tally(len(ops))
    with quiet():
        bare = [decide(schema) for _, schema in cases]
        # No plugin at all, whatever is set in the environment or installed.
        with dr.install(Settings(allowed=())):
            own = [decide(schema) for _, schema in cases]
    for (call, schema), theirs, ours in zip(cases, bare, own, strict=True):
        tally.add(Case(call, schema, theirs, ours))
    return tally


def _placed(call: Call, meshes: Sequence[DeviceMesh], effort: Effort) -> Iterator[OpSchema]:
    skip_last = random.Random(f"share of {call.op}").random() > effort.share
    for mesh, draws in zip(meshes, effort.draws, strict=True):
        if not (skip_last and mesh is meshes[-1]):
            for draw in range(draws):
                yield place(call, mesh, random.Random(f"{call} on {mesh.shape}, {draw}"))


def calls_of(effort: Effort) -> Calls:
    """Record calls, and make up those of ops that no sample reaches."""
    known = record(effort.samples)
    return known | related(adopted(), known, effort.samples)


def main() -> None:
    """Print what the long run finds."""
    dist.init_process_group("fake", rank=0, world_size=RANKS)
    known = calls_of(LONG)
    print("adopted:", compare(adopted(), known, LONG))
    print("decomposed:", compare(decomposed(known), known, DECOMPOSED_LONG))


if __name__ == "__main__":
    main()
