"""Checkpoints: model and optimizer written by `torch.distributed.checkpoint`, and read again."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from benchmarks.parity.programs.fsdp import BATCH, loss_of, share, two_blocks
from benchmarks.parity.programs.optimizers import PLACED
from benchmarks.parity.programs.tensor_parallel import SEQUENCE, SEQUENCE_PLAN, WIDTH
from benchmarks.parity.stage import Program, Results, Stage


def _placed(where: str, optimizer: str, options: dict[str, Any], stage: Stage) -> Results:
    """Save after two steps, go on for one, load, and make that one again."""
    placed = PLACED[where]
    net = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 4))
    x = stage.place(torch.randn(8, 8), placed["input"])
    net = stage.place_module(net, placed)
    steps = getattr(torch.optim, optimizer)(net.parameters(), lr=0.05, **options)

    def step() -> None:
        steps.zero_grad()
        net(x).square().mean().backward()
        steps.step()

    return _save_and_load(net, steps, step, stage)


def _fsdp(plan: dict[str, Any] | None, stage: Stage) -> Results:
    model = two_blocks(stage, plan)
    steps = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = share(stage, torch.randn(BATCH, SEQUENCE, WIDTH), plan is not None)

    def step() -> None:
        steps.zero_grad()
        loss_of(stage, model(x), plan is not None).backward()
        steps.step()

    return _save_and_load(model, steps, step, stage)


def _save_and_load(model: nn.Module, steps: Any, step: Any, stage: Stage) -> Results:
    step()
    step()
    weights, state = get_state_dict(model, steps)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=stage.folder / "saved")
    step()
    after = {name: p.detach().clone() for name, p in model.named_parameters()}
    weights, state = get_state_dict(model, steps)
    read = {"model": weights, "optimizer": state}
    dcp.load(read, checkpoint_id=stage.folder / "saved")
    set_state_dict(
        model,
        steps,
        model_state_dict=read["model"],
        optim_state_dict=read["optimizer"],
    )
    step()
    found = {f"again {name}": p for name, p in model.named_parameters()}
    return {**found, **after}


def _state_dicts(stage: Stage) -> Results:
    """Copies and state dicts within the process."""
    net = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 4))
    net = stage.place_module(net, PLACED["mixed"])
    x = stage.place(torch.randn(8, 8), "S0")
    steps = torch.optim.AdamW(net.parameters(), lr=0.05)
    net(x).square().mean().backward()
    steps.step()
    other = copy.deepcopy(net)
    others = torch.optim.AdamW(other.parameters(), lr=0.05)
    others.load_state_dict(copy.deepcopy(steps.state_dict()))
    other.load_state_dict(net.state_dict())
    for model, optimizer in ((net, steps), (other, others)):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return {
        **{f"other {n}": p for n, p in other.named_parameters()},
        **dict(net.named_parameters()),
    }


PROGRAMS = [
    Program("dcp-replicated-sgd", partial(_placed, "R", "SGD", {"momentum": 0.9})),
    Program("dcp-sharded-adamw", partial(_placed, "S", "AdamW", {})),
    Program("dcp-mixed-adagrad", partial(_placed, "mixed", "Adagrad", {})),
    Program("dcp-fsdp", partial(_fsdp, None)),
    Program("dcp-fsdp-tp", partial(_fsdp, SEQUENCE_PLAN)),
    Program("state-dicts-and-deepcopy", _state_dicts),
]
