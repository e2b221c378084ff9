"""The demo's training loop as one rank runs it, in a form that an audit can call."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import dtensor_registry as dr

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from main_job.job import MESH_DIM_NAMES, MESH_SHAPE, Job
from main_job.train import _train


def train() -> None:
    """Join the group and train; the backend is the one that the demo names."""
    dist.init_process_group("gloo")
    train_on(init_device_mesh("cpu", MESH_SHAPE, mesh_dim_names=MESH_DIM_NAMES))


def train_on(mesh: DeviceMesh) -> None:
    """Take two steps, and leave the metrics out, whose shapes depend on data."""
    job = Job(steps=2)
    with dr.install():
        for _loss in islice(_train(job, mesh), job.steps):
            pass
