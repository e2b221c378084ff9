"""One process of a pool: runs what its parent names, until the pipe between them ends."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from benchmarks.parity.programs import PROGRAMS
from benchmarks.parity.stage import RANKS, Program, Stage, stage_of_ranks
from benchmarks.parity.traffic import Traffic
from benchmarks.parity.ways import enter

GROUP_SECONDS = 600
"""More than any task may take: the parent ends what hangs."""


def run_program(program: Program, stage: Stage, truth: Path) -> dict[str, Any]:
    """Run a program; say what came of it, and what it moved.

    In one process the results are written down; on ranks they are compared with those. A program
    that comes to wrong numbers and was warned of them is not silently wrong: it counts as refused.
    """
    torch.manual_seed(0)
    traffic = Traffic()
    begin = time.perf_counter()
    try:
        with traffic, warnings.catch_warnings(record=True) as warned:
            results = tree_map(_whole, dict(program.run(stage)))
        outcome, told = "right", ""
    except Exception as error:
        traceback.print_exc()
        first = str(error).strip().partition("\n")[0][:300]
        outcome, told = "refused", f"{type(error).__name__}: {first}"
        results = {}
    file = truth / f"{program.name}.pt"
    if outcome == "right" and not stage.on_ranks:
        torch.save(results, file)
    elif outcome == "right":
        wanted = torch.load(file)
        wrong = _differences(results, wanted, program.tolerance)
        if wrong:
            outcome, told = "wrong", "; ".join(wrong[:3])
        if wrong and warned:
            outcome, told = "refused", f"warns: {str(warned[0].message).partition(chr(10))[0]}"
    return {
        "outcome": outcome,
        "told": told,
        "collectives": dict(sorted(traffic.collectives.items())),
        "bytes": traffic.bytes,
        "seconds": round(time.perf_counter() - begin, 3),
    }


def run_call(call: Any, stage: Stage) -> dict[str, Any]:
    """Make a call on DTensors, forward and backward, and compare it with the call on tensors."""
    from benchmarks.parity.calls import start_of
    from dtensor_registry_kit.dispatching.compare_call import Seen, compare_call
    from dtensor_registry_kit.simulation.mesh import plainly

    mesh = stage.mesh if len(call.mesh) == 1 else stage.grid
    assert mesh is not None
    traffic = Traffic()
    begin = time.perf_counter()
    try:
        with plainly():
            wanted = call.wanted()
        torch.manual_seed(0)
        with traffic:
            seen = compare_call(wanted, start_of(call), mesh, call.seed)
    except Exception as error:  # of the simulation: real ranks will tell
        seen = Seen("raised", f"outside of the call: {type(error).__name__}: {error}")
    outcome, told = seen.outcome, seen.message
    if seen.no_backward:
        outcome, told = "refused", f"backward: {seen.no_backward}"
    return {
        "outcome": outcome if outcome in ("right", "wrong") else "refused",
        "told": told,
        "collectives": dict(sorted(traffic.collectives.items())),
        "bytes": traffic.bytes,
        "seconds": round(time.perf_counter() - begin, 3),
    }


def _whole(value: Any) -> Any:
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _differences(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> list[str]:
    if got.keys() != wanted.keys():
        return [f"it returns {sorted(got)}, one process {sorted(wanted)}"]
    return [
        told for name in wanted if (told := _difference(name, got[name], wanted[name], tolerance))
    ]


def _difference(name: str, got: Any, want: Any, tolerance: float) -> str:
    if not isinstance(want, torch.Tensor):
        return "" if got == want else f"{name} is {got!r}, in one process {want!r}"
    if got.shape != want.shape or got.dtype != want.dtype:
        is_, should = (f"{v.dtype} {tuple(v.shape)}" for v in (got, want))
        return f"{name} is {is_}, in one process {should}"
    if not want.is_floating_point():
        return "" if torch.equal(got, want) else f"{name} has other values"
    if torch.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    off = (got.double() - want.double()).abs().nan_to_num(torch.inf).max().item()
    return f"{name} is off by {off:.3g}"


def main(kind: str, way: str, rank: int, folder: Path, pipe: Connection) -> None:
    """Serve tasks.

    Args:
        kind: `gloo` (one of four ranks), `simulated` (all four, simulated in this process) or
            `one` (no ranks at all: what the others are compared with).
        way: what to install.
        rank: this one's number.
        folder: of the pool; what is written to the screen goes to a file there.
        pipe: to the parent.
    """
    os.setsid()
    with open(folder / f"rank-{rank}.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    for name in [name for name in os.environ if name.startswith("DTENSOR_REGISTRY_")]:
        del os.environ[name]
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with _stage(kind, rank, folder) as stage:
        pipe.send(_entered(kind, way))
        with contextlib.suppress(EOFError):
            while True:
                pipe.send(_served(pipe.recv(), stage, rank))


def _entered(kind: str, way: str) -> dict[str, Any]:
    """Install what a way needs; say whether that was possible."""
    try:
        if kind != "one":
            enter(way)  # type: ignore[arg-type]
    except Exception as error:
        return {"outcome": "refused", "told": f"{type(error).__name__}: {error}"}
    return {"outcome": "right", "told": ""}


def _served(task: dict[str, Any], stage: Stage, rank: int) -> dict[str, Any]:
    if "call" in task:
        from benchmarks.parity.calls import read_call, read_calls

        if task["file"] not in _CALLS:
            _CALLS[task["file"]] = read_calls(Path(task["file"]))
        return run_call(read_call(_CALLS[task["file"]][task["call"]]), stage)
    _empty(stage, rank)
    torch.set_default_dtype(torch.float64)
    return run_program(PROGRAMS[task["program"]], stage, Path(task["truth"]))


_CALLS: dict[str, Mapping[str, bytes]] = {}


@contextlib.contextmanager
def _stage(kind: str, rank: int, folder: Path) -> Iterator[Stage]:
    work = folder / "work"
    if kind == "one":
        yield Stage(None, None, work)
    elif kind == "gloo":
        store = dist.FileStore(str(folder / "store"), RANKS)
        limit = timedelta(seconds=GROUP_SECONDS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=limit)
        yield stage_of_ranks(work)
    else:
        from dtensor_registry_kit.simulation.mesh import simulated_mesh

        with simulated_mesh(RANKS):
            yield stage_of_ranks(work)


def _empty(stage: Stage, rank: int) -> None:
    if rank == 0:
        shutil.rmtree(stage.folder, ignore_errors=True)
        stage.folder.mkdir(parents=True)
    if stage.on_ranks:
        dist.barrier()
