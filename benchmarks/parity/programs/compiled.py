"""Programs under `torch.compile`; the one process runs them as they are."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.parity.programs.fsdp import BATCH, share, two_blocks
from benchmarks.parity.programs.tensor_parallel import (
    BLOCK_PLAN,
    SEQUENCE,
    WIDTH,
    Block,
    gradients,
)
from benchmarks.parity.stage import Program, Results, Stage


def _function(backend: str, stage: Stage) -> Results:
    weight = stage.place(torch.randn(8, 6, requires_grad=True), "S0")
    bias = stage.place(torch.randn(8), "R")

    def product(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x @ weight.t() + bias).sum(0)

    run = torch.compile(product, backend=backend, fullgraph=True) if stage.on_ranks else product
    found = {}
    for rows in (4, 8):
        out = run(stage.place(torch.randn(rows, 6), "S0"))
        out.sum().backward()
        found[f"{rows}"] = out
    return {**found, "gradient": weight.grad}


def _block(backend: str, stage: Stage) -> Results:
    block = stage.parallelize(Block(), BLOCK_PLAN)
    if stage.on_ranks:
        block.compile(backend=backend)
    for _ in range(2):
        out = block(torch.randn(2, SEQUENCE, WIDTH))
        out.square().mean().backward()
    return {"out": out, **gradients(block)}


def _fsdp(backend: str, stage: Stage) -> Results:
    model = two_blocks(stage)
    if stage.on_ranks:
        model.compile(backend=backend)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(share(stage, torch.randn(BATCH, SEQUENCE, WIDTH), False)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        steps.zero_grad()
    return dict(model.named_parameters())


PROGRAMS = [
    Program(f"compile-{name}-{backend}", partial(run, backend), seconds=150.0)
    for name, run in (("function", _function), ("block", _block), ("fsdp", _fsdp))
    for backend in ("aot_eager", "inductor")
]
