"""Tensor parallelism by torch's own plans, with and without sequence parallelism."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
)
from torch.nn import functional

from benchmarks.parity.stage import Program, Results, Stage

WIDTH, HEADS, VOCABULARY, SEQUENCE, BATCH = 16, 4, 32, 8, 2


class Attention(nn.Module):
    """Causal self-attention, whose heads may be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        size = WIDTH // HEADS
        q, k, v = (
            layer(x).unflatten(-1, (-1, size)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        weights = (q @ k.transpose(-1, -2) / size**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """One block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Language(nn.Module):
    """A language model of one block."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.block = Block()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.block(self.embedding(tokens))))


BLOCK_PLAN: dict[str, Any] = {
    "attention.q": ColwiseParallel(use_local_output=False),
    "attention.k": ColwiseParallel(use_local_output=False),
    "attention.v": ColwiseParallel(use_local_output=False),
    "attention.out": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}

SEQUENCE_PLAN: dict[str, Any] = {
    "attention_norm": SequenceParallel(),
    "attention": PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
    ),
    "attention.q": ColwiseParallel(use_local_output=False),
    "attention.k": ColwiseParallel(use_local_output=False),
    "attention.v": ColwiseParallel(use_local_output=False),
    "attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}


def gradients(module: nn.Module) -> dict[str, Any]:
    """List the gradients of a module's parameters."""
    return {f"gradient of {name}": p.grad for name, p in module.named_parameters()}


def tokens_and_goal() -> tuple[Tensor, Tensor]:
    """Make a batch."""
    return (
        torch.randint(0, VOCABULARY, (BATCH, SEQUENCE)),
        torch.randint(0, VOCABULARY, (BATCH * SEQUENCE,)),
    )


def _block(stage: Stage) -> Results:
    block = stage.parallelize(Block(), BLOCK_PLAN)
    x = torch.randn(BATCH, SEQUENCE, WIDTH, requires_grad=True)
    out = block(x)
    out.square().mean().backward()
    return {"out": out, "gradient": x.grad, **gradients(block)}


def _sequence_parallel_block(stage: Stage) -> Results:
    block = stage.parallelize(Block(), SEQUENCE_PLAN)
    x = stage.share(torch.randn(BATCH, SEQUENCE, WIDTH), tensor_dim=1).requires_grad_()
    out = block(x)
    (out.square().sum() / (BATCH * SEQUENCE * WIDTH)).backward()
    return {
        "out": stage.from_share(out, "S1"),
        "gradient": stage.from_share(x.grad, "S1"),
        **gradients(block),
    }


def _language(plan: dict[str, Any], tied: bool, stage: Stage) -> Results:
    model = stage.parallelize(Language(), plan)
    if tied:
        model.head.weight = model.embedding.weight
    tokens, goal = tokens_and_goal()
    loss = functional.cross_entropy(model(tokens).flatten(0, 1), goal)
    loss.backward()
    return {"loss": loss, **gradients(model)}


def _language_plan(embedding: Any, **head: Any) -> dict[str, Any]:
    inner = {f"block.{name}": style for name, style in BLOCK_PLAN.items()}
    return {"embedding": embedding, **inner, "head": ColwiseParallel(**head)}


def _loss_parallel(options: dict[str, Any], stage: Stage) -> Results:
    weight = options.get("weight")
    logits = stage.place(torch.randn(6, VOCABULARY, requires_grad=True), "S1")
    goal = torch.randint(0, VOCABULARY, (6,))
    goal[1] = 3
    options = dict(options)
    if weight is not None:
        options["weight"] = stage.place(torch.linspace(0.5, 1.5, VOCABULARY), "R")
    given = stage.place(goal, "R")
    if stage.on_ranks:
        with loss_parallel():
            loss = functional.cross_entropy(logits, given, **options)
            loss.sum().backward()
    else:
        loss = functional.cross_entropy(logits, given, **options)
        loss.sum().backward()
    return {"loss": loss, "gradient": logits.grad}


LOSS_OPTIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "ignore": {"ignore_index": 3},
    "weight": {"weight": True},
    "smoothing": {"label_smoothing": 0.1},
}


def _loss_parallel_model(stage: Stage) -> Results:
    plan = _language_plan(
        RowwiseParallel(input_layouts=Replicate()), use_local_output=False, output_layouts=Shard(-1)
    )
    model = stage.parallelize(Language(), plan)
    tokens, goal = tokens_and_goal()

    def loss() -> Tensor:
        value = functional.cross_entropy(model(tokens).flatten(0, 1), goal)
        value.backward()
        return value

    if not stage.on_ranks:
        return {"loss": loss(), **gradients(model)}
    with loss_parallel():
        return {"loss": loss(), **gradients(model)}


def _local_map(stage: Stage) -> Results:
    rows = stage.place(torch.randn(8, 6, requires_grad=True), "S0")
    weight = stage.place(torch.randn(6, 4, requires_grad=True), "R")

    def product(x: Tensor, w: Tensor) -> Tensor:
        return torch.mm(x, w).relu()

    run: Callable[..., Any] = product
    if stage.on_ranks:
        run = local_map(
            product, out_placements=[Shard(0)], in_placements=([Shard(0)], [Replicate()])
        )
    out = run(rows, weight)
    (out * 2).sum().backward()
    return {"out": out, "gradient": rows.grad}


def _replicated_data_parallel(stage: Stage) -> Results:
    """Data parallelism by DTensors alone: whole weights, a cut batch."""
    model = stage.place_module(Language(), "R")
    tokens, goal = tokens_and_goal()
    logits = model(stage.place(tokens.repeat(2, 1), "S0"))
    loss = functional.cross_entropy(logits.flatten(0, 1), stage.place(goal.repeat(2), "S0"))
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return {"loss": loss, "norm": norm, **gradients(model)}


def _attention_grid(stage: Stage) -> Results:
    """Batch over one mesh dim, heads over the other."""
    q, k, v = (
        stage.place(torch.randn(4, HEADS, SEQUENCE, 8, requires_grad=True), "S0 S1")
        for _ in range(3)
    )
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.square().sum().backward()
    return {"out": out, "q": q.grad, "k": k.grad, "v": v.grad}


def _embedding(where: str, stage: Stage) -> Results:
    table = stage.place(torch.randn(VOCABULARY, 8, requires_grad=True), where)
    tokens = stage.place(torch.randint(0, VOCABULARY, (4, 6)), "R")
    out = functional.embedding(tokens, table)
    out.sum().backward()
    return {"out": out, "gradient": table.grad}


def _clip(foreach: bool, stage: Stage) -> Results:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    stage.place_module(net, {"0.weight": "S0", "0.bias": "S0", "2.weight": "S1"})
    x = stage.place(torch.randn(8, 8), "S0")
    net(x).square().sum().backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5, foreach=foreach)
    largest = nn.utils.clip_grad_norm_(net.parameters(), 0.05, norm_type=float("inf"))
    nn.utils.clip_grad_value_(net.parameters(), 0.01, foreach=foreach)
    return {"norm": norm, "largest": largest, **gradients(net)}


LANGUAGE_PLAN = _language_plan(
    RowwiseParallel(input_layouts=Replicate()), output_layouts=Replicate()
)
COLUMNWISE_PLAN = _language_plan(
    ColwiseParallel(output_layouts=Replicate()), output_layouts=Replicate()
)

PROGRAMS = [
    Program("tp-block", _block),
    Program("tp-block-sequence-parallel", _sequence_parallel_block),
    Program("tp-language", partial(_language, LANGUAGE_PLAN, False)),
    Program("tp-language-columnwise-embedding", partial(_language, COLUMNWISE_PLAN, False)),
    Program("tp-tied-weights", partial(_language, LANGUAGE_PLAN, True)),
    *(
        Program(f"loss-parallel-{name}", partial(_loss_parallel, options))
        for name, options in LOSS_OPTIONS.items()
    ),
    Program("loss-parallel-language", _loss_parallel_model),
    Program("local-map", _local_map),
    Program("replicated-data-parallel", _replicated_data_parallel),
    Program("attention-batch-and-heads", _attention_grid),
    Program("vocabulary-parallel-embedding", partial(_embedding, "S0")),
    Program("columnwise-embedding", partial(_embedding, "S1")),
    Program("clip-grad-norm-loop", partial(_clip, False)),
    Program("clip-grad-norm-foreach", partial(_clip, True)),
]
