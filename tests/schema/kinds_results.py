"""Kinds of ops by what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import register_decomposition

from dtensor_registry import ShardingPlaceholder as S
from tests.schema.kind import SUM, VALUES, Kind, kind, same_dims

X = VALUES[:1]
SEEDED = torch.Tag.nondeterministic_seeded


def _multiples(x: Tensor, n: int) -> list[Tensor]:
    return [x * i for i in range(1, n + 1)]


def _masked(x: Tensor, m: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
    return x * 2 if m[0] else None, x.cumsum(0) if m[1] else None


def _found(x: Tensor) -> Tensor:
    return x[x > 0]


def _found_shape(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def _summed(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    return [[SUM, S(0)], [SUM, S(1)], [SUM, SUM]]


def _pairs(xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Tensor]:
    return [x + y for x, y in zip(xs, ys, strict=True)]


def _log(x: Tensor) -> None:
    """Read, and give nothing back."""


RESULTS: tuple[Kind, ...] = (
    kind("two outputs", "two(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x.cumsum(0)),
         tensors=X, rule=lambda *_: [[S(1), S(1), S(1)], [SUM, SUM, SUM]], on_gloo=True),
    kind("Tensor[] out, as many as n", "multiples(Tensor x, int n) -> Tensor[]", _multiples,
         lambda t: ((t[0], 3), {}), lambda t: ((t[0], 2), {}), tensors=X,
         rule=same_dims(partial=True), on_gloo=True),
    kind("Tensor[] beside a tensor", "parts(Tensor x, int n) -> (Tensor[], Tensor)",
         lambda x, n: (_multiples(x, n), x.cumsum(0)), lambda t: ((t[0], 3), {}),
         lambda t: ((t[0], 2), {}), tensors=X, on_gloo=True, local=False),
    kind("Tensor[] in and out", "pairs(Tensor[] xs, Tensor[] ys) -> Tensor[]", _pairs,
         lambda t: ((t[:2], t[1:]), {}), tensors=VALUES, rule=same_dims(partial=True)),
    kind("float beside a tensor", "number_too(Tensor x) -> (Tensor, float)",
         lambda x: (x * 2, 3.0), tensors=X, rule=same_dims(), on_gloo=True),
    kind("no output, nothing written", "log(Tensor x) -> ()", _log, tensors=X, rule=same_dims(0)),
    kind("mask turns an output into None", "masked(Tensor x, bool[2] m) -> (Tensor, Tensor)",
         _masked, lambda t: ((t[0], [True, False]), {}), lambda t: ((t[0], [False, True]), {}),
         lambda t: ((t[0], [True, True]), {}), tensors=X,
         rule=same_dims(2, dims=(1,)), on_gloo=True),
    kind("Tensor? out", "perhaps(Tensor x, bool f) -> Tensor?",
         lambda x, f: x.cumsum(0) if f else None,
         lambda t: ((t[0], True), {}), lambda t: ((t[0], False), {}), tensors=X,
         rule=same_dims(dims=(1,))),
    kind("output shape known afterwards", "dyn(Tensor x) -> Tensor", _found, tensors=X, fake=None,
         on_gloo=True),
    kind("output shape is a symbol", "sym(Tensor x) -> Tensor", _found, tensors=X,
         fake=_found_shape),
    kind("no fake kernel", "nofake(Tensor x, Tensor y) -> (Tensor, Tensor)",
         lambda x, y: (x + y.cumsum(0), y.sum(0)), fake=None, on_gloo=True),
    kind("an int out", "rows(Tensor x) -> int", lambda x: x.shape[0], tensors=X),
    kind("0-dim out", "total(Tensor x) -> Tensor", lambda x: x.sum(), tensors=X, rule=_summed,
         on_gloo=True),
    kind("bool out", "above(Tensor x) -> Tensor", lambda x: x > 1, tensors=X, rule=same_dims()),
    kind("output with other strides", "turned(Tensor x) -> Tensor",
         lambda x: x.t().clone(memory_format=torch.contiguous_format).t(), tensors=X,
         rule=same_dims()),
    kind("view", "head(Tensor(a) x) -> Tensor(a)", lambda x: x[:2], tensors=X,
         fallback_refuses="S(0) S(1) P mixed", rule=same_dims(dims=(1,)), on_gloo=True),
    kind("Tensor[] of views", "halves(Tensor(a) x) -> Tensor(a)[]",
         lambda x: [x[:3], x[3:]], tensors=X, fallback_refuses="S(0) S(1) P mixed",
         rule=same_dims(dims=(1,))),
    kind("random", "noise(Tensor x) -> Tensor", lambda x: x + torch.rand_like(x), tensors=X,
         tags=[SEEDED], fallback_refuses="all", on_gloo=True),
    kind("composite (CIA)", "composite(Tensor x, Tensor y) -> Tensor",
         lambda x, y: torch.relu(x) + y, key="CompositeImplicitAutograd"),
    kind("decomposable", "decomposed(Tensor x, Tensor y) -> Tensor", lambda x, y: x.exp() + y),
    kind("takes the size of the whole", "filled(Tensor x, SymInt[] size, float v) -> Tensor",
         lambda x, size, v: x.new_full(size, v), lambda t: ((t[0], [7, 4], 3.0), {}), tensors=X,
         rule=lambda *_: [[S(0), S(0)]], rule_refuses="S(0) P mixed"),
    kind("reshape to a size of the whole", "mkshape(Tensor x, SymInt[] size) -> Tensor",
         lambda x, size: x.reshape(size).clone(), lambda t: ((t[0], [7, 2, 2]), {}),
         lambda t: ((t[0], [28]), {}), tensors=X,
         rule=lambda *_: [[S(0), S(0)]], rule_refuses="S(0) P mixed"),
    kind("view of a size of the whole", "mkview(Tensor(a) x, SymInt[] size) -> Tensor(a)",
         lambda x, size: x.view(size), lambda t: ((t[0], [7, 2, 2]), {}), tensors=X,
         fallback_refuses="S(0) S(1) P mixed"),
)  # fmt: skip

register_decomposition(torch.ops.schema_matrix.decomposed.default)(lambda x, y: x.exp() + y)
