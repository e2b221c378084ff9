"""What programs do to modules: meta devices, initialisation, checkpointing, functional calls."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from benchmarks.parity.programs.tensor_parallel import (
    BATCH,
    BLOCK_PLAN,
    SEQUENCE,
    WIDTH,
    Block,
    gradients,
)
from benchmarks.parity.stage import Program, Results, Stage


def _meta(stage: Stage) -> Results:
    with torch.device("meta"):
        block = Block()
    stage.parallelize(block, BLOCK_PLAN)
    block.to_empty(device="cpu")
    with torch.no_grad():
        for number, parameter in enumerate(block.parameters()):
            parameter.fill_(0.01 * (number + 1))
    x = torch.randn(BATCH, SEQUENCE, WIDTH)
    out = block(x)
    out.sum().backward()
    return {"out": out, **gradients(block)}


def _initialise(stage: Stage) -> Results:
    weight = stage.place(torch.randn(8, 8), "S0")
    bias = stage.place(torch.randn(8), "S0")
    partial_sum = stage.place(torch.randn(4), "P")
    average = stage.place(torch.randn(4), "Pavg")
    nn.init.constant_(weight, 0.5)
    nn.init.ones_(bias)
    nn.init.zeros_(partial_sum)
    nn.init.constant_(average, 8)
    eye = nn.init.eye_(stage.place(torch.randn(8, 6), "R"))
    return {"weight": weight, "bias": bias, "sum": partial_sum, "average": average, "eye": eye}


def _checkpointed(reentrant: bool, stage: Stage) -> Results:
    block = stage.parallelize(Block(), BLOCK_PLAN)
    x = torch.randn(BATCH, SEQUENCE, WIDTH, requires_grad=True)
    out = checkpoint(block, x, use_reentrant=reentrant)
    out.square().mean().backward()
    return {"out": out, "gradient": x.grad, **gradients(block)}


def _functional(stage: Stage) -> Results:
    block = stage.parallelize(Block(), BLOCK_PLAN)
    x = torch.randn(BATCH, SEQUENCE, WIDTH)
    doubled = {name: p.detach() * 2 for name, p in block.named_parameters()}
    return {"out": functional_call(block, doubled, (x,))}


def _dtypes(stage: Stage) -> Results:
    net = stage.place_module(nn.Linear(8, 8), {"weight": "S0", "bias": "S0"})
    x = stage.place(torch.randn(4, 8), "R")
    half = net(x).to(torch.float32).to(torch.bfloat16).float()
    net.to(torch.float32)
    return {"half": half, "single": net(x.float()), "weight": net.weight}


def _average_of_weights(stage: Stage) -> Results:
    """An exponential moving average of weights, in a list and in a loop."""
    net = stage.place_module(nn.Linear(8, 8), {"weight": "S0"})
    slow = [p.detach().clone() for p in net.parameters()]
    fast = [p.detach() * 3 for p in net.parameters()]
    torch._foreach_lerp_(slow, fast, 0.25)
    torch._foreach_mul_(slow, 2.0)
    torch._foreach_add_(slow, fast, alpha=-1.0)
    norms = torch._foreach_norm(slow)
    return {f"{at}": value for at, value in enumerate([*slow, *norms])}


def _accumulate(stage: Stage) -> Results:
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 2))
    net = stage.place_module(net, "R")
    for _ in range(3):
        net(stage.place(torch.randn(8, 8), "S0")).square().mean().div(3).backward()
    return gradients(net)


def _hooks(stage: Stage) -> Results:
    """Statistics of activations and gradients, as loggers take them."""
    net = stage.place_module(nn.Linear(8, 8), {"weight": "S0", "bias": "S0"})
    found: dict[str, torch.Tensor] = {}

    def note(name: str, value: torch.Tensor) -> None:
        found[f"{name} mean"] = value.detach().mean()
        found[f"{name} largest"] = value.detach().abs().max()
        found[f"{name} norm"] = torch.linalg.vector_norm(value.detach())
        found[f"{name} std"] = value.detach().std()
        found[f"{name} finite"] = value.detach().isfinite().all()

    net.register_forward_hook(lambda _, __, out: note("out", out))
    net(stage.place(torch.randn(8, 8), "R")).square().sum().backward()
    note("gradient", net.weight.grad)
    return found


def _printed(stage: Stage) -> Results:
    """A DTensor that is printed, compared and read as a number."""
    x = stage.place(torch.arange(8.0), "S0")
    total = x.sum()
    if isinstance(total, DTensor):
        total = total.full_tensor()
    return {"text": bool("DTensor" in repr(x)) is stage.on_ranks, "item": total.item()}


PROGRAMS = [
    Program("meta-and-to-empty", _meta),
    Program("initialisation", _initialise),
    Program("checkpointing-reentrant", partial(_checkpointed, True)),
    Program("checkpointing", partial(_checkpointed, False)),
    Program("functional-call", _functional),
    Program("dtypes", _dtypes),
    Program("average-of-weights", _average_of_weights),
    Program("gradient-accumulation", _accumulate),
    Program("statistics-in-hooks", _hooks),
    Program("printing", _printed),
]
