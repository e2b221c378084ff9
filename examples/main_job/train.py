"""The training loop, and what one rank does around it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

import dtensor_registry as dr
from main_job.data import batches, read_text
from main_job.job import (
    MESH_DIM_NAMES,
    MESH_SHAPE,
    Event,
    Job,
    Measured,
    OpsSeen,
    StepDone,
)
from main_job.metrics import EDGES, measure
from main_job.model import seeded_model
from main_job.plan import shard_batch, shard_model
from main_job.report import OpRow
from main_job.torch_alone import has_of_its_own

COLLECTIVE_TIMEOUT = timedelta(seconds=60)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor, targets: Tensor
) -> Tensor:
    """Take one step on plain tensors or on DTensors, and return the loss before it."""
    optimizer.zero_grad()
    loss: Tensor = model(tokens, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    _reduce_gradients(model)
    optimizer.step()
    return loss.full_tensor() if isinstance(loss, DTensor) else loss


def train_plain(job: Job) -> Iterator[Event]:
    """Train on this process alone, without DTensor, and tell every step and the metrics."""
    torch.set_num_threads(1)
    yield from _train(job, mesh=None)


def run_rank(
    rank: int, world_size: int, rendezvous: str, job: Job, tell: Callable[[Event], None]
) -> None:
    """Train as one of four ranks; rank 0 tells what happens.

    Args:
        rank: of this process.
        world_size: number of processes.
        rendezvous: URL at which the ranks meet, for example `file:///tmp/x/store`.
        job: the same on every rank.
        tell: called on rank 0 alone.
    """
    torch.set_num_threads(1)
    # torch warns that two reductions in a row, or an all-to-all over gloo, could be faster.
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    dist.init_process_group(
        "gloo",
        init_method=rendezvous,
        rank=rank,
        world_size=world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )
    try:
        mesh = init_device_mesh("cpu", MESH_SHAPE, mesh_dim_names=MESH_DIM_NAMES)
        with dr.install(fallback={"mode": "silent"}):  # the table says what it moves
            if rank > 0:  # one audit is enough: it slows a rank down, and all decide alike
                for _event in _train(job, mesh):
                    pass
                return
            with dr.audit() as seen:
                for event in _train(job, mesh):
                    tell(event)
        has = has_of_its_own(record.op for record in seen.rows if "." in record.op)
        tell(OpsSeen(tuple(OpRow.read(record, has.get(record.op, "")) for record in seen.rows)))
    finally:
        dist.destroy_process_group()


def _train(job: Job, mesh: DeviceMesh | None) -> Iterator[Event]:
    model = seeded_model(job.size, job.seed)
    if mesh is not None:
        shard_model(model, mesh)
    # foreach would hide the updates of all parameters behind a few ops in the table.
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate, foreach=False)
    for pair in batches(
        read_text(), steps=job.steps, batch=job.batch, sequence=job.size.sequence, seed=job.seed
    ):
        tokens, targets = pair if mesh is None else (shard_batch(part, mesh) for part in pair)
        yield StepDone(training_step(model, optimizer, tokens, targets).item())
    edges = torch.tensor(EDGES)
    if mesh is not None:
        edges = distribute_tensor(edges, mesh, [Replicate()] * mesh.ndim, src_data_rank=None)
    yield Measured(measure(model, tokens, targets, edges))


def _reduce_gradients(model: nn.Module) -> None:
    """Sum what the ranks have of a gradient, once, before the optimizer reads it many times."""
    for parameter in model.parameters():
        if isinstance(parameter, DTensor) and isinstance(parameter.grad, DTensor):
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
