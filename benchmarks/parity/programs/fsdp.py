"""Fully sharded data parallelism (FSDP2), alone and over tensor parallelism."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

from benchmarks.parity.programs.tensor_parallel import (
    SEQUENCE,
    SEQUENCE_PLAN,
    WIDTH,
    Block,
    gradients,
)
from benchmarks.parity.stage import Program, Results, Stage

BATCH = 8


def two_blocks(stage: Stage, plan: dict[str, Any] | None = None, **policy: Any) -> nn.Module:
    """Make a model, with a plan of tensor parallelism under the data parallelism."""
    model = nn.Sequential(Block(), Block())
    if not stage.on_ranks:
        return model
    assert stage.mesh is not None
    assert stage.grid is not None
    mesh = stage.mesh if plan is None else stage.grid["dp"]
    for block in model:
        if plan is not None:
            stage.parallelize(block, plan, mesh=stage.grid["tp"])
        fully_shard(block, mesh=mesh, **policy)
    fully_shard(model, mesh=mesh, **policy)
    return model


def share(stage: Stage, batch: Tensor, grid: bool) -> Tensor:
    """Take what this rank sees of a batch; over a grid, its sequence is cut, too."""
    if not grid or stage.grid is None:
        return stage.share(batch)
    return stage.share(stage.share(batch, stage.grid["dp"]), stage.grid["tp"], tensor_dim=1)


def loss_of(stage: Stage, out: Tensor, grid: bool) -> Tensor:
    """Make a loss whose gradient is that of the mean over the whole batch.

    The ranks of data parallelism average their gradients; those that share a sequence add them.
    """
    parts = 2 if grid and stage.on_ranks else 1
    return out.square().mean() / parts


def _train(
    optimizer: str, plan: dict[str, Any] | None, options: dict[str, Any], stage: Stage
) -> Results:
    model = two_blocks(stage, plan)
    chosen = [p for p in model.parameters() if optimizer != "Muon" or p.dim() == 2]
    steps = getattr(torch.optim, optimizer)(chosen, lr=0.01, **options)
    found = {}
    for at in range(3):
        x = share(stage, torch.randn(BATCH, SEQUENCE, WIDTH), plan is not None)
        loss_of(stage, model(x), plan is not None).backward()
        found[f"norm {at}"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        steps.zero_grad()
    return {**found, **dict(model.named_parameters())}


def _accumulate(stage: Stage) -> Results:
    model = two_blocks(stage)
    for at in range(3):
        if stage.on_ranks:
            model.set_requires_gradient_sync(at == 2)
        x = share(stage, torch.randn(BATCH, SEQUENCE, WIDTH), False)
        model(x).square().mean().backward()
    return gradients(model)


def _low_precision(stage: Stage) -> Results:
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = two_blocks(stage, mp_policy=half)
    x = share(stage, torch.randn(BATCH, SEQUENCE, WIDTH), False)
    model(x).square().mean().backward()
    steps = torch.optim.AdamW(model.parameters(), lr=0.001)
    steps.step()
    return dict(model.named_parameters())


def _arithmetic(stage: Stage) -> Results:
    """What a training loop does to parameters of FSDP over tensor parallelism by hand."""
    model = two_blocks(stage, SEQUENCE_PLAN)
    found: dict[str, Any] = {}
    with torch.no_grad():
        average = {name: p.detach().clone() for name, p in model.named_parameters()}
        for name, p in model.named_parameters():
            average[name].lerp_(p * 2, 0.1)
            p.mul_(0.5).add_(average[name], alpha=0.1)
            found[f"norm of {name}"] = p.norm()
            found[f"sum of {name}"] = (p + average[name]).sum()
            found[f"average of {name}"] = average[name]
            found[f"positive {name}"] = torch.where(p > 0, p, torch.zeros_like(p))
        weight = model[0].up.weight
        found["product"] = weight @ weight.t()
        found["linear"] = functional.linear(weight, weight)
    return {**found, **dict(model.named_parameters())}


PROGRAMS = [
    Program("fsdp-adamw", partial(_train, "AdamW", None, {})),
    Program("fsdp-sgd-momentum", partial(_train, "SGD", None, {"momentum": 0.9})),
    Program("fsdp-adam-fused", partial(_train, "Adam", None, {"fused": True})),
    Program("fsdp-accumulation", _accumulate),
    Program("fsdp-mixed-precision", _low_precision, tolerance=1e-2),
    Program("fsdp-tp-adamw", partial(_train, "AdamW", SEQUENCE_PLAN, {})),
    Program("fsdp-tp-adamw-loop", partial(_train, "AdamW", SEQUENCE_PLAN, {"foreach": False})),
    Program("fsdp-tp-sgd-momentum", partial(_train, "SGD", SEQUENCE_PLAN, {"momentum": 0.9})),
    Program("fsdp-tp-adafactor", partial(_train, "Adafactor", SEQUENCE_PLAN, {})),
    Program("fsdp-tp-muon", partial(_train, "Muon", SEQUENCE_PLAN, {}), tolerance=5e-2),
    Program("fsdp-tp-arithmetic", _arithmetic),
]
