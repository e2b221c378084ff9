"""An audit of a program finds what four real ranks see when they run it."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

import dtensor_registry as dr
from dtensor_registry.auditing.program import audit_program


def run_real(program: str) -> dict[str, Any]:
    """Run a program's `train_on` on this rank, under an audit and under torch's own counter."""
    sys.path.insert(0, str(Path(__file__).parent))
    module, told = importlib.import_module(program), importlib.import_module("told")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    with told.CollectiveCounter() as counter, dr.audit() as record:
        module.train_on(mesh)
    del counter.counts[""]  # waiting for one
    return {
        "rows": told.told(record.rows),
        "audited": told.collectives(record.rows),
        "sent": dict(counter.counts),
    }


def run_demo(rank: int) -> dict[str, Any]:
    return run_real("demo_program")


def run_llama(rank: int) -> dict[str, Any]:
    return run_real("llama_program")


def check(real: list[dict[str, Any]], program: str) -> None:
    began = time.monotonic()
    audited = audit_program(f"{program}:train", [], ranks=4)
    seconds = time.monotonic() - began
    told: Any = importlib.import_module("told")
    assert (audited.stopped, audited.lacking, audited.is_hosted) == (None, (), True)
    assert told.told(audited.rows) == real[0]["rows"]
    for seen in real:
        assert seen["audited"] == seen["sent"]
    assert seconds < 60


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_audit_of_the_demos_training_steps_counts_what_real_ranks_count(run_ranks: Any) -> None:
    check(run_ranks(run_demo, ranks=4, timeout=200), "demo_program")


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_audit_of_a_tensor_parallel_llama_finds_what_real_ranks_dispatch(run_ranks: Any) -> None:
    check(run_ranks(run_llama, ranks=4, timeout=200), "llama_program")
