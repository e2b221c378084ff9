"""Random calls: as text for an explanation, and as DTensors on simulated ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, distribute_tensor

from dtensor_registry.explanation import AskedTensor
from dtensor_registry.placements import REPLICATE, Partial, Shard
from dtensor_registry.planner import mixed_partial
from dtensor_registry.torch_runtime.conversion import placements_to_torch


@torch.library.custom_op("explain_tests::whole", mutates_args=())
def whole(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Stand for all ops that nobody has a rule for."""
    return x + y


@whole.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@dataclass(frozen=True)
class RandomCall:
    """A call whose tensors are asked for.

    Attributes:
        op: the overload's name.
        args: `AskedTensor`, lists of them, and other values.
    """

    op: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


Draw = Callable[..., AskedTensor]

SIZES = (1, 3, 4, 8, 12)


def _same(draw: Draw, rng: random.Random) -> tuple[AskedTensor, AskedTensor]:
    shape = [rng.choice(SIZES) for _ in range(rng.choice((1, 2, 3)))]
    return draw(*shape), draw(*shape)


def _mm(draw: Draw, rng: random.Random) -> tuple[Any, ...]:
    m, k, n = (rng.choice(SIZES) for _ in range(3))
    return draw(m, k), draw(k, n)


def _addmm(draw: Draw, rng: random.Random) -> tuple[Any, ...]:
    m, k, n = (rng.choice(SIZES) for _ in range(3))
    return draw(n), draw(m, k), draw(k, n)


def _bmm(draw: Draw, rng: random.Random) -> tuple[Any, ...]:
    b, m, k, n = (rng.choice(SIZES) for _ in range(4))
    return draw(b, m, k), draw(b, k, n)


def _one(*rest: Any, rank: int = 2) -> Callable[[Draw, random.Random], tuple[Any, ...]]:
    return lambda draw, rng: (draw(*(rng.choice(SIZES) for _ in range(rank))), *rest)


def _lists(draw: Draw, rng: random.Random) -> tuple[Any, ...]:
    pairs = [_same(draw, rng) for _ in range(2)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _cat(draw: Draw, rng: random.Random) -> tuple[Any, ...]:
    m = rng.choice(SIZES)
    return [draw(m, rng.choice(SIZES)) for _ in range(2)], 1


def _norm(draw: Draw, rng: random.Random) -> tuple[Any, ...]:
    m, n = rng.choice(SIZES), rng.choice(SIZES)
    return draw(m, n), [n], draw(n), draw(n), 1e-5


OPS: dict[str, Callable[[Draw, random.Random], tuple[Any, ...]]] = {
    "aten.add.Tensor": _same,
    "aten.add_.Tensor": _same,
    "aten.mul.Tensor": _same,
    "aten.maximum.default": _same,
    "aten.mm.default": _mm,
    "aten.addmm.default": _addmm,
    "aten.bmm.default": _bmm,
    "aten.relu.default": _one(),
    "aten.frexp.Tensor": _one(),
    "aten.sum.dim_IntList": _one([0]),
    "aten.mean.dim": _one([1], True),
    "aten.max.dim": _one(0),
    "aten._softmax.default": _one(1, False),
    "aten.cumsum.default": _one(0),
    "aten.topk.default": _one(1),
    "aten.sort.default": _one(1),
    "aten.t.default": _one(),
    "aten.transpose.int": _one(0, 2, rank=3),
    "aten.unsqueeze.default": _one(1),
    "aten.select.int": _one(0, 0),
    "aten.cat.default": _cat,
    "aten.native_layer_norm.default": _norm,
    "aten._foreach_add.List": _lists,
    "aten.aminmax.default": _one(),
    "aten.kron.default": lambda draw, rng: (draw(4, 4), draw(2, 4)),
    "aten.bucketize.Tensor": lambda draw, rng: (draw(8, 4), draw(8)),
    # Of even pieces: torch's handler raises on a rank that has none, which is not rank 0.
    "aten.argmin.default": lambda draw, rng: (draw(8, 12), 0),
    "explain_tests.whole.default": _same,
}
"""Ops by plugins, by torch's kinds of rules, decomposed, composite, by handler, by fallback."""


def random_calls(count: int, mesh_shape: Sequence[int], seed: int) -> list[RandomCall]:
    """Draw calls, every op about as often."""
    rng = random.Random(seed)
    names = [*OPS] * (count // len(OPS) + 1)

    def draw(*shape: int) -> AskedTensor:
        placements = tuple(_placement(len(shape), rng) for _ in mesh_shape)
        if mixed_partial(placements):
            placements = tuple(REPLICATE if isinstance(p, Partial) else p for p in placements)
        return AskedTensor("f32", shape, placements)

    return [RandomCall(name, tuple(OPS[name](draw, rng))) for name in names[:count]]


def _placement(rank: int, rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.35:
        return REPLICATE
    if kind < 0.85:
        return Shard(rng.randrange(rank))
    return Partial(rng.choice(("sum", "sum", "avg", "max")))


def made_real(call: RandomCall, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Make the arguments on ranks that have data."""

    def real(value: Any) -> Any:
        if isinstance(value, list):
            return [real(item) for item in value]
        if not isinstance(value, AskedTensor):
            return value
        assert value.placements is not None
        wanted = placements_to_torch(value.placements)
        whole = torch.arange(torch.Size(value.shape).numel(), dtype=torch.float32)
        return _of(whole.reshape(value.shape), wanted, mesh)

    return tuple(map(real, call.args))


def _of(whole: torch.Tensor, wanted: Sequence[Placement], mesh: DeviceMesh) -> DTensor:
    cut = [Replicate() if placement.is_partial() else placement for placement in wanted]
    pieces = distribute_tensor(whole, mesh, cut, src_data_rank=None).to_local()
    return DTensor.from_local(
        pieces, mesh, wanted, run_check=False, shape=whole.shape, stride=whole.stride()
    )
