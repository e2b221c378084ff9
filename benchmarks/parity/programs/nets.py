"""Nets of other layers: normalisation, convolution, pooling, losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.parity.programs.tensor_parallel import gradients
from benchmarks.parity.stage import Program, Results, Stage


def _net(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    placed: dict[str, str],
    stage: Stage,
) -> Results:
    net = stage.place_module(make(), {k: v for k, v in placed.items() if k != "input"})
    x = stage.place(torch.randn(shape, requires_grad=True), placed.get("input", "S0"))
    out = net(x)
    out.square().mean().backward()
    kept = {f"buffer {name}": value for name, value in net.named_buffers()}
    return {"out": out, "gradient": x.grad, **gradients(net), **kept}


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, str]]] = {
    "batchnorm": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()), (8, 6), {}
    ),
    "batchnorm-eval": (lambda: nn.BatchNorm1d(6).eval(), (8, 6), {}),
    "batchnorm-channels": (
        lambda: nn.BatchNorm2d(8), (4, 8, 3, 3),
        {"input": "S1", "weight": "S0", "bias": "S0", "running_mean": "S0", "running_var": "S0"},
    ),
    "groupnorm": (lambda: nn.GroupNorm(2, 8), (4, 8, 3, 3), {}),
    "groupnorm-channels": (lambda: nn.GroupNorm(4, 8), (2, 8, 3), {"input": "S1"}),
    "layernorm": (lambda: nn.LayerNorm(8), (4, 6, 8), {"input": "S1"}),
    "rmsnorm": (lambda: nn.RMSNorm(8), (4, 6, 8), {"input": "S2"}),
    "conv2d-batch": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1)),
        (4, 3, 8, 8), {},
    ),
    "conv2d-width": (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 8, 16), {"input": "S3"}),
    "conv2d-output-channels": (
        lambda: nn.Conv2d(3, 8, 3), (2, 3, 8, 8), {"input": "R", "weight": "S0", "bias": "S0"},
    ),
    "conv1d-batch": (lambda: nn.Conv1d(3, 4, 3), (4, 3, 8), {}),
    "conv3d-batch": (lambda: nn.Conv3d(2, 3, 2), (4, 2, 4, 4, 4), {}),
    "conv-transpose": (lambda: nn.ConvTranspose2d(3, 4, 2), (4, 3, 5, 5), {}),
    "pooling": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()), (4, 2, 8, 8), {},
    ),
    "adaptive-pooling": (lambda: nn.AdaptiveAvgPool2d(2), (4, 2, 8, 8), {}),
    "upsample": (lambda: nn.Upsample(scale_factor=2), (4, 2, 4, 4), {}),
    "activations": (
        lambda: nn.Sequential(nn.SiLU(), nn.Softplus(), nn.LeakyReLU(), nn.Hardswish(), nn.GLU()),
        (8, 6), {},
    ),
    "softmax-over-the-cut": (lambda: nn.Softmax(-1), (4, 8), {"input": "S1"}),
    "multihead-attention": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (4, 6, 8), {},
    ),
    "gru": (lambda: _First(nn.GRU(6, 4, batch_first=True)), (4, 5, 6), {}),
}  # fmt: skip


class _First(nn.Module):
    """Gives the first output of a module only."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.module(x)[0]
        return first


def _loss(loss: Callable[..., Tensor], make: str, where: str, rows: int, stage: Stage) -> Results:
    raw = torch.rand(rows, 5) * 0.8 + 0.1
    goals: dict[str, Tensor] = {
        "like": torch.rand(rows, 5),
        "class": torch.randint(0, 5, (rows,)),
        "sign": torch.randint(0, 2, (rows, 5)) * 2.0 - 1,
    }
    x = stage.place(raw.requires_grad_(), where)
    goal = stage.place(goals[make], where if where == "S0" else "R")
    out = loss(x, goal)
    out.backward()
    return {"loss": out, "gradient": x.grad}


LOSSES: dict[str, tuple[Callable[..., Tensor], str]] = {
    "mse": (functional.mse_loss, "like"),
    "l1": (functional.l1_loss, "like"),
    "smooth-l1": (functional.smooth_l1_loss, "like"),
    "bce": (functional.binary_cross_entropy, "like"),
    "bce-logits": (functional.binary_cross_entropy_with_logits, "like"),
    "cross-entropy": (functional.cross_entropy, "class"),
    "cross-entropy-smoothed": (partial(functional.cross_entropy, label_smoothing=0.1), "class"),
    "kl": (partial(functional.kl_div, reduction="batchmean"), "like"),
    "soft-margin": (functional.soft_margin_loss, "sign"),
}


def _algebra(stage: Stage) -> Results:
    """What metrics and losses are made of."""
    x = stage.place(torch.randn(8, 6, requires_grad=True), "S0")
    y = stage.place(torch.randn(8, 6), "S1")
    found: dict[str, Any] = {
        "sum": (x + y).sum(1),
        "mean": (x * y).mean(0),
        "var": x.var(1),
        "norm": x.norm(dim=1),
        "logsumexp": x.logsumexp(1),
        "topk": x.topk(2, 1).values,
        "sort": x.sort(1).values,
        "cumsum": x.cumsum(1),
        "argmax": x.argmax(1),
        "product": x @ y.t(),
        "einsum": torch.einsum("bi,bj->ij", x, y),
        "cat": torch.cat([x, y], 1),
        "stack": torch.stack([x, y]),
        "chunks": x.chunk(2, 1)[1],
        "split": x.split(3, 1)[0],
        "gather": x.gather(1, stage.place(torch.randint(0, 6, (8, 2)), "S0")),
        "where": torch.where(x > 0, x, y),
        "clamp": x.clamp(-0.5, 0.5),
        "flat": x.reshape(8, 2, 3).transpose(1, 2).flatten(1),
        "maximum": torch.maximum(x, y),
        "unbound": x.detach().unbind(1)[2],
        "masked": x.masked_fill(y > 0, 0.0),
    }
    total = sum(v.sum() for v in found.values() if v.requires_grad)
    total.backward()
    return {**found, "gradient": x.grad}


PROGRAMS = [
    *(Program(f"net-{name}", partial(_net, *parts)) for name, parts in NETS.items()),
    *(
        Program(f"loss-{name}-{where}-{rows}", partial(_loss, *parts, where, rows))
        for name, parts in LOSSES.items()
        for where, rows in (("S0", 8), ("S0", 6), ("S1", 8))
    ),
    Program("algebra", _algebra),
]
