"""What all tests stand on: made-up plugins on disk, meshes without processes, a clean exit."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import importlib_metadata
import pytest

from dtensor_registry_kit.pytest_plugin.fixtures import write_distribution

FakeDistribution: TypeAlias = Callable[..., str]
LocalMesh: TypeAlias = Callable[..., Any]
RunRanks: TypeAlias = Callable[..., list[Any]]

PLUGINS_FIRST = ("*", "pointwise", "matrix", "structure", "corrections", "torch")
"""Setting `order` under which the plugins of this repository replace torch's own rules."""

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
RANK_PROGRAM = Path(__file__).with_name("installation") / "rank_program.py"
TABLES = (
    "op_single_dim_strategy_funcs",
    "op_strategy_funcs",
    "op_to_rules",
    "op_to_schema_info",
    "op_to_schema_info_for_single_dim_strategy",
)


@pytest.fixture(autouse=True)
def bare_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no setting but the defaults: neither the environment nor any file counts."""
    for variable in list(os.environ):
        if variable.upper().startswith("DTENSOR_REGISTRY_"):
            monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def clean_loan() -> Iterator[None]:
    """Fail a test that leaves a rule in force, or another entry in torch's tables."""
    before = _tables()
    yield
    loan = sys.modules.get("dtensor_registry.torch_patch.override_stack")
    if loan is None:
        return
    left = [layer.name for layer in loan.LOAN.layers]
    for layer in loan.LOAN.layers:
        loan.LOAN.remove(layer)
    changed = [] if before is None else _restored(before)
    assert (left, changed) == ([], []), "the test left rules in force, or changed torch's tables"


def _tables() -> dict[str, dict[Any, Any]] | None:
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:
        return None  # a test of the pure floors; it must not pay for torch
    return {name: dict(table) for name, table in _live_tables(tensor.DTensor._op_dispatcher)}


def _live_tables(dispatcher: Any) -> list[tuple[str, dict[Any, Any]]]:
    propagator = dispatcher.sharding_propagator
    return [
        ("_custom_op_handlers", dispatcher._custom_op_handlers),
        *((name, getattr(propagator, name)) for name in TABLES),
    ]


def _restored(before: dict[str, dict[Any, Any]]) -> list[str]:
    """Say which entries of torch's tables have changed, and put them back for the next test."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._decompositions import DecompShardingStrategy

    changed = []
    for table, now in _live_tables(DTensor._op_dispatcher):
        entries = before[table]
        found = [
            op
            for op in {**entries, **now}
            if now.get(op) is not entries.get(op)
            # torch itself adds schema info when it first decomposes an op.
            and not (
                "schema_info" in table
                and op not in entries
                and DecompShardingStrategy.has_decomp(op)
            )
            # and rules this op when inductor, which defines it, is first imported.
            and not (op not in entries and str(op) == "prims.fma.default")
        ]
        if found:
            now.clear()
            now.update(entries)
        changed += [f"{op} in {table}" for op in found]
    return changed


@pytest.fixture
def repository_plugins(tmp_path: Path) -> Iterator[None]:
    """Have the plugins of this repository installed, also where only their sources are there."""
    with installed_plugins(tmp_path):
        yield


@contextmanager
def installed_plugins(folder: Path) -> Iterator[None]:
    """Write what is missing for the plugins' sources to be installed, in a folder of its own."""
    path = list(sys.path)
    for name in ("pointwise", "matrix", "structure", "fallback"):
        distribution = f"dtensor-registry-{name}"
        try:
            importlib_metadata.distribution(distribution)
        except importlib_metadata.PackageNotFoundError:
            info = folder / distribution
            write_distribution(info, distribution, {name: f"dtensor_registry_{name}"}, "0.1.0")
            sys.path += [str(info), str(PLUGINS / name / "src")]
    try:
        yield
    finally:
        sys.path[:] = path


@pytest.fixture
def local_mesh() -> Iterator[LocalMesh]:
    """Make a mesh whose ranks all live in this process: `local_mesh(2, 2) -> DeviceMesh`.

    Tensors made after it are `LocalTensor`s: one value per rank, checked by `reconcile()`.
    """
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    modes: list[LocalTensorMode] = []

    def make(*shape: int) -> Any:
        ranks = 1
        for size in shape:
            ranks *= size
        if not modes:
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
            modes.append(LocalTensorMode(ranks))
            modes[0].__enter__()
        return init_device_mesh("cpu", shape)

    yield make
    if modes:
        modes[0].__exit__(None, None, None)
        dist.destroy_process_group()


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory) -> RunRanks:
    """Run a function on real gloo ranks: `run_ranks(function, ranks, timeout) -> results`.

    The function, at the top level of a test file, takes its rank and returns a JSON value. Ranks
    that have not ended after `timeout` seconds are killed, and the test fails.
    """

    def run(function: Callable[[int], Any], ranks: int = 4, timeout: float = 120) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        spawn = multiprocessing.get_context("spawn")
        told = {
            "FILE": function.__code__.co_filename,
            "FUNCTION": function.__name__,
            "FOLDER": str(folder),
            "RANKS": ranks,
        }
        processes = [
            spawn.Process(
                target=runpy.run_path,
                args=(str(RANK_PROGRAM),),
                kwargs={"init_globals": {**told, "RANK": rank}, "run_name": "__rank__"},
            )
            for rank in range(ranks)
        ]
        with installed_plugins(folder):
            for process in processes:
                process.start()
        deadline = time.monotonic() + timeout
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            time.sleep(0.05)
            if any(folder.glob("rank*.error")):
                # The others wait for that rank, and would until the group's own timeout.
                deadline = min(deadline, time.monotonic() + 2)
        late = [process for process in processes if process.is_alive()]
        for process in late:
            process.kill()
        for process in processes:
            process.join()
        errors = "\n".join(file.read_text() for file in sorted(folder.glob("rank*.error")))
        assert not errors, errors
        assert not late, f"{len(late)} of {ranks} ranks were killed after {timeout} s"
        return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]

    return run
