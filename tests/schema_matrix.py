"""Prints what happens to every kind of op, under bare torch and with the registry.

    python -m tests.schema_matrix

One line per kind, number of ranks and way to be sharded (by a rule, or by the fallback); one
column per placement of the inputs, each with `torch alone -> with the registry`.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy

import dtensor_registry as dr
from dtensor_registry.torch_runtime.conversion import row_to_torch
from tests.schema.kind import Kind
from tests.schema.kinds_inputs import INPUTS
from tests.schema.kinds_results import RESULTS
from tests.schema.kinds_writes import WRITES
from tests.schema.outcome import Outcome, run
from tests.schema.world import COLUMNS, local_ranks

KINDS: tuple[Kind, ...] = (*INPUTS, *WRITES, *RESULTS)
CASES = [(kind, "rule") for kind in KINDS if kind.rule is not None]
CASES += [(kind, "fallback") for kind in KINDS]
MESHES = ((2,), (4,), (2, 2))


@contextmanager
def registry(kind: Kind, mode: str) -> Iterator[None]:
    """Have a kind sharded by its rule alone, or by the fallback."""
    if mode == "fallback":
        with dr.install(allowed=["dtensor-registry-fallback"], fallback={"mode": "silent"}):
            yield
    else:
        with dr.register_single_dim_strategy(kind.op)(kind.known_rule):
            yield


@contextmanager
def torch_alone(kind: Kind, mode: str) -> Iterator[None]:
    """Have a kind sharded by its rule, given to torch as torch's own rules are; or by nothing."""
    propagator = DTensor._op_dispatcher.sharding_propagator
    if mode == "rule":
        rule = kind.known_rule
        register_single_dim_strategy(kind.op)(
            lambda op, args, kwargs: [row_to_torch(row) for row in rule(op, args, kwargs)]
        )
    try:
        yield
    finally:
        for table in ("op_single_dim_strategy_funcs", "op_to_schema_info_for_single_dim_strategy"):
            getattr(propagator, table).pop(kind.op, None)
        propagator.propagate_op_sharding.cache_clear()
        torch._C._clear_DTensor_sharding_propagator_cache()


def outcomes(kind: Kind, mode: str, mesh: DeviceMesh, alone: bool = False) -> dict[str, Outcome]:
    """Run a kind in every column."""
    with torch_alone(kind, mode) if alone else registry(kind, mode):
        return {
            column: run(kind, turns, mesh, views=mode == "fallback")
            for column, turns in COLUMNS[mesh.ndim].items()
        }


def main() -> int:
    """Print the table; the exit code is the number of outcomes that are silently wrong."""
    warnings.simplefilter("ignore")
    counts: dict[str, Counter[str]] = {"torch alone": Counter(), "with registry": Counter()}
    for shape in MESHES:
        with local_ranks(*shape) as mesh:
            for kind, mode in (case for case in CASES if case[0].local):
                alone = outcomes(kind, mode, mesh, alone=True)
                ours = outcomes(kind, mode, mesh)
                on = "x".join(map(str, shape))
                print(f"{kind.title}   {kind.op._schema}   {mode}, {on} ranks")
                for column, outcome in ours.items():
                    detail = outcome.detail[:150] if "-v" in sys.argv else ""
                    print(f"    {column:10}{alone[column]!s:34}{outcome!s:32}{detail}".rstrip())
                    counts["torch alone"][alone[column].verdict] += 1
                    counts["with registry"][outcome.verdict] += 1
    for name, count in counts.items():
        print(f"{name}: " + ", ".join(f"{number} {word}" for word, number in count.most_common()))
    return counts["with registry"]["WRONG"]


if __name__ == "__main__":
    sys.exit(main())
