"""Writes in place: into slices, views and partial sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.parity.stage import Program, Results, Stage

SLICES: dict[str, Callable[[Tensor], object]] = {
    "zero": lambda x: x[0:2].zero_(),
    "fill": lambda x: x[0:2].fill_(3.0),
    "mul": lambda x: x[2:6].mul_(2.0),
    "add": lambda x: x[1:3].add_(1.0),
    "init": lambda x: nn.init.zeros_(x[:2]),
    "assign-number": lambda x: x.__setitem__(slice(0, 1), 0),
    "assign-row": lambda x: x.__setitem__(1, 0.0),
    "assign-column": lambda x: x.__setitem__((slice(None), 1), 0.0),
    "select": lambda x: x.select(0, 3).neg_(),
    "narrow": lambda x: x.narrow(0, 2, 3).clamp_(-0.1, 0.1),
    "view": lambda x: x.view(-1)[3:9].zero_(),
    "transposed": lambda x: x.t()[2].zero_(),
    "chunk": lambda x: x.chunk(2)[1].mul_(0.5),
    "unbind": lambda x: x.unbind(0)[5].zero_(),
    "diagonal": lambda x: x.diagonal().zero_(),
}


def _slice(write: Callable[[Tensor], object], where: str, stage: Stage) -> Results:
    x = stage.place(torch.randn(8, 8), where)
    for _ in range(2):  # the second time, torch's C++ cache answers
        write(x)
    return {"x": x}


PARTIAL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda x, m: torch.where(m, x, x).relu_(),
    "lerp": lambda x, _: torch.lerp(x, x, 0.5).relu_(),
    "masked-fill": lambda x, m: x.masked_fill(m, 0.0).relu_(),
    "clone-clamp": lambda x, _: x.clone().clamp_(-1, 1),
    "clone-add": lambda x, _: x.clone().add_(1),
    "empty-like": lambda x, _: torch.empty_like(x).fill_(2.0),
    "zeros-like": lambda x, _: torch.zeros_like(x).add_(1.0),
    "ones-like": lambda x, _: torch.ones_like(x) * x,
    "full-like": lambda x, _: torch.full_like(x, 3.0) + x,
    "fill": lambda x, _: x.fill_(8.0),
    "zero": lambda x, _: x.zero_(),
    "scale": lambda x, _: (x * 2).div_(4),
    "sum": lambda x, _: x.sum(0).mul_(2),
    "accumulate": lambda x, m: x.add_(x),
}


def _partial(run: Callable[[Tensor, Tensor], Tensor], where: str, stage: Stage) -> Results:
    x = stage.place(torch.randn(4, 6), where)
    mask = stage.place(torch.rand(4, 6) > 0.5, "R")
    return {"out": run(x, mask)}


PROGRAMS = [
    *(
        Program(f"write-{name}-{where}", partial(_slice, write, where))
        for name, write in SLICES.items()
        for where in ("S0", "S1", "R")
    ),
    *(
        Program(f"partial-{name}-{where}", partial(_partial, run, where))
        for name, run in PARTIAL.items()
        for where in ("P", "Pavg", "Pmax")
    ),
]
