"""The calls: ops that torch answers, with samples of theirs and placements drawn for these.

A call is named `OP/SAMPLE/MESH/DRAW`, such as `aten.mm.default/0/2x2/1`, and is the same in every
process and at any time: everything drawn is seeded by that name.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._ops import OpOverload

from dtensor_registry.torch_patch.decompositions import is_decomposed
from dtensor_registry.torch_patch.table_patcher import has_rule
from dtensor_registry.torch_patch.torch_rules import torch_rows
from dtensor_registry.torch_runtime.dispatcher import dispatcher
from dtensor_registry.torch_runtime.ops import find_op, overloads
from dtensor_registry_kit import Sample, run_reference
from dtensor_registry_kit.dispatching.compare_call import Wanted, wanted_of
from dtensor_registry_kit.dispatching.input_placements import (
    InputPlacements,
    input_rows,
    list_input_placements,
    read_input_placements,
    show_input_placements,
)
from dtensor_registry_kit.samples.choose import known_samples
from dtensor_registry_kit.simulation.distribute import on_grid
from dtensor_registry_kit.simulation.reference_run import alike_memory, is_deterministic

MESHES = ((4,), (2, 2))
SAMPLES, DRAWS = 2, 3
"""Of each op, and of each of these on each mesh."""
FEW_SAMPLES, FEW_DRAWS = 1, 1
"""Of an op that torch decomposes: bare torch traces that once for every choice of placements."""
MOST = 6
"""Samples that are run of an entry of OpInfo."""
MOST_TENSORS = 6
"""Calls with more tensors are left out: bare torch would list millions of choices."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op on DTensors.

    Attributes:
        name: what it is replayed by.
        op: the overload's name.
        sample: the call on whole tensors.
        start: how the tensors are placed, as text.
        mesh: ranks by mesh dim.
    """

    name: str
    op: str
    sample: Sample
    start: str
    mesh: tuple[int, ...]

    @property
    def about(self) -> str:
        """What is called, and how its tensors lie."""
        return f"{self.op}({self.sample}) with {self.start} on {self.mesh}"

    @property
    def seed(self) -> int:
        """Of what the ranks hold."""
        return zlib.crc32(self.name.encode()) % 1000

    def wanted(self) -> Wanted:
        """Make the call on whole tensors."""
        op = find_op(self.op)
        assert op is not None
        return wanted_of(run_reference(op, self.sample.args, self.sample.kwargs), self.seed)


def ops_of_torch() -> list[OpOverload]:
    """List what torch answers: by a rule, a handler or a decomposition; kin beside kin."""
    found = {
        op
        for op in (*overloads("aten"), *overloads("prims"))
        if has_rule(op) or op in dispatcher()._custom_op_handlers or is_decomposed(op)
    }
    return sorted(found, key=lambda op: (_stem(op), str(op)))


def _stem(op: OpOverload) -> str:
    return str(op).split(".")[1].removeprefix("_foreach_").strip("_")


@alike_memory()
def calls_of(op: OpOverload) -> Iterator[Call]:
    """Draw the calls of one op."""
    is_few = not (has_rule(op) or op in dispatcher()._custom_op_handlers)
    samples = known_samples(op, FEW_SAMPLES if is_few else SAMPLES, MOST)
    for at, known in enumerate(samples):
        # What ranks reduce is the very number that one process is given: some ops compare.
        sample = known.changed(lambda _, tensor: on_grid(tensor), known.origin, known.role)
        try:
            whole = run_reference(op, sample.args, sample.kwargs)
        except Exception:  # noqa: S112 - a sample that does not run is no sample
            continue
        if not 0 < len(whole.inputs) <= MOST_TENSORS or not is_deterministic(whole):
            continue
        rows = input_rows(_rule, op, sample)
        for mesh in MESHES:
            name = f"{op}/{at}/{'x'.join(map(str, mesh))}"
            draws = FEW_DRAWS if is_few else DRAWS
            seed = zlib.crc32(name.encode())
            drawn = list_input_placements(whole, rows, mesh, 2 * draws, seed, alone=False)
            for number, start in enumerate(drawn):
                if number < draws:
                    yield Call(
                        f"{name}/{number}", str(op), sample, show_input_placements(start), mesh
                    )


def _rule(op: Any, args: Any, kwargs: Any) -> Any:
    return torch_rows(op, args, kwargs) or []


def write_calls(calls: Iterable[Call], file: Path) -> None:
    """Write calls down for other processes."""
    file.write_bytes(pickle.dumps({call.name: pickle.dumps(call) for call in calls}))


def read_calls(file: Path) -> Mapping[str, bytes]:
    """Read what `write_calls` wrote, each call for itself to be read by `read_call`."""
    found: dict[str, bytes] = pickle.loads(file.read_bytes())
    return found


def read_call(written: bytes) -> Call:
    """Read one call."""
    call: Call = pickle.loads(written)
    return call


def start_of(call: Call) -> InputPlacements:
    """Read how a call's tensors lie."""
    return read_input_placements(call.start)
