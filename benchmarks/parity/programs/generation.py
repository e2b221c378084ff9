"""Generation of text with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.parity.stage import Program, Results, Stage

HEADS, SIZE, LONGEST, STEPS = 4, 6, 8, 4

Cache = tuple[Tensor, Tensor]
Write = Callable[[Cache, int, Tensor, Tensor], Cache]


def _assign(cache: Cache, at: int, key: Tensor, value: Tensor) -> Cache:
    cache[0][:, :, at : at + 1] = key
    cache[1][:, :, at : at + 1] = value
    return cache


def _copy(cache: Cache, at: int, key: Tensor, value: Tensor) -> Cache:
    cache[0].narrow(2, at, 1).copy_(key)
    cache[1].select(2, at).copy_(value.squeeze(2))
    return cache


def _index_copy(cache: Cache, at: int, key: Tensor, value: Tensor) -> Cache:
    where = torch.tensor([at])
    if hasattr(key, "device_mesh"):
        from torch.distributed.tensor import Replicate, distribute_tensor

        where = distribute_tensor(where, key.device_mesh, [Replicate()])  # type: ignore[attr-defined]
    cache[0].index_copy_(2, where, key)
    cache[1].index_copy_(2, where, value)
    return cache


def _concatenate(cache: Cache, at: int, key: Tensor, value: Tensor) -> Cache:
    return (
        torch.cat([cache[0][:, :, :at], key], 2),
        torch.cat([cache[1][:, :, :at], value], 2),
    )


WRITES: dict[str, Write] = {
    "assign": _assign,
    "copy": _copy,
    "index-copy": _index_copy,
    "concatenate": _concatenate,
}


def _generate(write: Write, where: str, stage: Stage) -> Results:
    cache = tuple(stage.place(torch.zeros(2, HEADS, LONGEST, SIZE), where) for _ in range(2))
    placed = where if where in ("S1", "S0") else "R"
    found = []
    for at in range(STEPS):
        query, key, value = (stage.place(torch.randn(2, HEADS, 1, SIZE), placed) for _ in range(3))
        cache = write(cache, at, key, value)  # type: ignore[arg-type]
        keys, values = cache[0][:, :, : at + 1], cache[1][:, :, : at + 1]
        weights = (query @ keys.transpose(-1, -2)).softmax(-1)
        found.append(weights @ values)
    return {**{f"step {at}": out for at, out in enumerate(found)}, "k": cache[0], "v": cache[1]}


def _greedy(stage: Stage) -> Results:
    table = stage.place(torch.randn(16, 8), "S0")
    head = stage.place(torch.randn(16, 8), "S0")
    token = stage.place(torch.tensor([3, 5]), "R")
    found = []
    with torch.no_grad():
        for _ in range(STEPS):
            logits = functional.linear(functional.embedding(token, table), head)
            token = logits.argmax(-1)
            found.append(token)
    return {f"token {at}": value for at, value in enumerate(found)}


def _inference_mode(stage: Stage) -> Results:
    with torch.inference_mode():
        x = stage.place(torch.randn(4, 8), "R")
        up = stage.place(torch.randn(16, 8), "S0")
        down = stage.place(torch.randn(8, 16), "S1")
        hidden = functional.silu(functional.linear(x, up))
        out = functional.linear(hidden, down)
        return {"out": out, "normed": functional.rms_norm(out, (8,)), "best": out.topk(2).indices}


PROGRAMS = [
    *(
        Program(f"cache-{name}-{where}", partial(_generate, write, where))
        for name, write in WRITES.items()
        for where in ("S1", "S2")
    ),
    Program("greedy-decoding", _greedy),
    Program("inference-mode", _inference_mode),
]
