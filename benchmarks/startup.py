"""What a process pays once: `install()`, and the first step of the demo's model.

Each is measured in processes of its own, which this module runs as a program:

    python -m benchmarks.startup install
    python -m benchmarks.startup step bare 2x2x2
"""

from __future__ import annotations

import json
import logging
import math
import statistics
import subprocess
import sys
import time
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.figure import BOTH, Figure, Side

ROOT = Path(__file__).resolve().parents[1]
BATCH = 8
SECONDS = 3600.0
"""After which a process is given up; bare torch takes minutes for a step on a 3-D mesh."""


def install_time(runs: int) -> list[Figure]:
    """Measure `install()` in fresh processes where torch is imported already."""
    told = [_run("install") for _ in range(runs)]
    median = statistics.median(one["ms"] for one in told)
    return [Figure("install()", 0, None, median, runs)]


def first_step(mesh_shape: tuple[int, ...], runs: int) -> list[Figure]:
    """Measure the first training step of the demo's model, each in a fresh process."""
    shape = "x".join(map(str, mesh_shape))
    taken: dict[Side, list[float]] = {"bare": [], "registry": []}
    for _ in range(runs):
        for side in BOTH:
            taken[side].append(_run("step", side, shape)["ms"])
    bare, registry = (statistics.median(taken[side]) for side in BOTH)
    return [Figure("first step of the demo's model", len(mesh_shape), bare, registry, runs)]


def _run(*arguments: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.startup", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"benchmarks.startup {' '.join(arguments)} failed:\n{ran.stderr}")
    return json.loads(ran.stdout.splitlines()[-1])


MISSING = ("aten._scaled_dot_product_flash_attention_for_cpu", "aten.softshrink")
"""ATen's ops in the example model, and their gradients, for which bare torch has no rule."""


def _install() -> dict[str, Any]:
    import_module("torch.distributed.tensor")
    import dtensor_registry as dr

    begin = time.perf_counter()
    dr.install()
    return {"ms": (time.perf_counter() - begin) * 1e3}


def _step(side: str, mesh_shape: tuple[int, ...]) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "examples"))
    from main_job.model import BYTES, ModelSize, seeded_model
    from main_job.plan import shard_batch, shard_model
    from main_job.train import training_step

    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=math.prod(mesh_shape))
    mesh = init_device_mesh("cpu", mesh_shape)
    if side == "registry":
        import dtensor_registry as dr

        dr.install()
    _give_missing_rules()
    size = ModelSize()
    model = seeded_model(size, seed=0)
    shard_model(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    text = torch.randint(0, BYTES, (BATCH, size.sequence + 1))
    tokens, targets = (shard_batch(t.contiguous(), mesh) for t in (text[:, :-1], text[:, 1:]))
    begin = time.perf_counter()
    training_step(model, optimizer, tokens, targets)
    return {"ms": (time.perf_counter() - begin) * 1e3}


def _give_missing_rules() -> None:
    """Have rules for what the model needs also where no plugin is: in bare torch's own table.

    The same function for torch as for the registry, so that both expand the same rows.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy

    import acme_kernels.dtensor
    import dtensor_registry_matrix
    import dtensor_registry_pointwise
    from dtensor_registry.torch_patch.catalog import TorchCatalog
    from dtensor_registry.torch_runtime.conversion import row_from_rule, row_to_torch
    from dtensor_registry.torch_runtime.schema import runtime_schema_info

    known = DTensor._op_dispatcher.sharding_propagator.op_single_dim_strategy_funcs
    providers = (acme_kernels.dtensor, dtensor_registry_matrix, dtensor_registry_pointwise)
    for strategy in chain(*(provider.provide_single_dim_strategy() for provider in providers)):
        for op in (overload for n in strategy.names for overload in TorchCatalog().overloads(n)):
            if op in known or not str(op).startswith(("acme.", *MISSING)):
                continue

            def rule(op: Any, args: Any, kwargs: Any, own: Any = strategy.rule) -> Any:
                return [row_to_torch(row_from_rule(row)) for row in own(op, args, kwargs)]

            register_single_dim_strategy(op, runtime_schema_info(op, strategy.schema_info))(rule)


def main(arguments: list[str]) -> None:
    """Measure one thing in this process and print it as JSON."""
    what, *rest = arguments
    if what == "install":
        print(json.dumps(_install()))
    else:
        side, shape = rest
        print(json.dumps(_step(side, tuple(map(int, shape.split("x"))))))


if __name__ == "__main__":
    main(sys.argv[1:])
