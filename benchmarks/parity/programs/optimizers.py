"""Every optimizer of torch, in each of its forms: three steps of a small net."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.parity.stage import Program, Results, Stage

STEPS = 3

OPTIONS: dict[str, dict[str, Any]] = {
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "Adamax": {},
    "ASGD": {},
    "LBFGS": {"max_iter": 3, "history_size": 2},
    "Muon": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "weight_decay": 0.01},
}
"""Arguments that make an optimizer use what it has.

SparseAdam is missing: it takes sparse gradients only, and a DTensor is never sparse.
"""

FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
LOOP_ONLY = ("LBFGS", "Muon")

PLACED: dict[str, dict[str, str]] = {
    "R": {"input": "S0"},
    "S": {"0.weight": "S0", "0.bias": "S0", "2.weight": "S1", "input": "R"},
    "mixed": {"0.weight": "S1", "2.weight": "S0", "2.bias": "S0", "input": "S0"},
}
"""How the net's parameters and its input lie; `R` where nothing is said."""

TOLERANCE = {"Muon": 5e-2}
"""Muon computes in bfloat16."""


def _forms(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "loop", ({} if name in LOOP_ONLY else {"foreach": False})
    if name not in LOOP_ONLY:
        yield "foreach", {"foreach": True}
    if name in FUSED:
        yield "fused", {"fused": True}


def train(name: str, form: dict[str, Any], placed: dict[str, str], stage: Stage) -> Results:
    """Train a net; return its losses, its parameters, and what the optimizer remembers."""
    net = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 4))
    inputs, wanted = torch.randn(8, 8), torch.randn(8, 4)
    net = stage.place_module(net, placed)
    rows, goal = stage.place(inputs, placed["input"]), stage.place(wanted, "R")
    chosen = [p for p in net.parameters() if name != "Muon" or p.dim() == 2]
    make = getattr(torch.optim, name)
    optimizer = make(chosen, lr=0.05, **OPTIONS[name], **form)
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (net(rows) - goal).square().sum() / goal.numel()
        loss.backward()
        return loss

    for _ in range(STEPS):
        loss = optimizer.step(closure)
        losses.append(loss.detach())
    held = {
        f"{at} {key}": value
        for at, parameter in enumerate(chosen)
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, torch.Tensor)
    }
    return {
        **{f"loss {at}": loss for at, loss in enumerate(losses)},
        **dict(net.named_parameters()),
        **held,
    }


PROGRAMS = [
    Program(
        f"{name}-{form}-{where}",
        partial(train, name, options, placed),
        TOLERANCE.get(name, 1e-7),
    )
    for name in OPTIONS
    for form, options in _forms(name)
    for where, placed in PLACED.items()
]
