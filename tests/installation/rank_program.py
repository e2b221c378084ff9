"""What one rank of `run_ranks` runs; the globals in capitals are given to it."""

from __future__ import annotations

import importlib.util
import json
import os
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist


def run(file: str, function: str, folder: Path, rank: int, ranks: int) -> None:
    """Join the group, run the function, and leave its result or its traceback in the folder."""
    for variable in [name for name in os.environ if name.startswith("DTENSOR_REGISTRY_")]:
        del os.environ[variable]
    os.chdir(folder)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    try:
        # By path: a test file has no name by which a new process could import it.
        spec = importlib.util.spec_from_file_location("rank_functions", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        result: Any = getattr(module, function)(rank)
        (folder / f"rank{rank}.json").write_text(json.dumps(result))
    except BaseException:
        (folder / f"rank{rank}.error").write_text(f"rank {rank}: {traceback.format_exc()}")
        raise
    finally:
        dist.destroy_process_group()


if __name__ == "__rank__":
    run(FILE, FUNCTION, Path(FOLDER), RANK, RANKS)  # type: ignore[name-defined]  # noqa: F821
