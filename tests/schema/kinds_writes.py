"""Kinds of ops by what they write to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.schema.kind import VALUES, Kind, kind, numbers, same_dims

COLUMNS = (1,)


def _bump(ys: Sequence[Tensor], x: Tensor) -> None:
    for y in ys:
        y.add_(x.cumsum(0))


def _into(y: Tensor, x: Tensor) -> None:
    y.add_(x.cumsum(0))


def _track(x: Tensor, running: Tensor | None, momentum: float) -> tuple[Tensor, Tensor]:
    if running is not None:
        running.mul_(momentum).add_(x.sum(0))
    return x * 2, x.sum(0)


def _track_shapes(x: Tensor, running: Tensor | None, momentum: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[1:])


def _track_rule(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    from dtensor_registry import ShardingPlaceholder as S

    running = [S(0)] * (args[1] is not None)
    return [[S(1), S(0), S(1), *running]]


def _out(x: Tensor, *, out: Tensor) -> Tensor:
    # As every out= kernel of torch, it gives `out` the shape of the result first.
    return out.resize_(x.shape).copy_(x.cumsum(0))


WRITES: tuple[Kind, ...] = (
    kind("in-place, with underscore", "inp_(Tensor(a!) x, Tensor y) -> Tensor(a!)",
         lambda x, y: x.add_(y.cumsum(0)),
         rule=same_dims(dims=COLUMNS, partial=True), fallback_refuses="P",
         rule_refuses="S(0) mixed", on_gloo=True),
    kind("mutates without underscore, returned", "mut(Tensor(a!) x, Tensor v) -> Tensor(a!)",
         lambda x, v: x.mul_(v), rule=same_dims(), fallback_refuses="P",
         rule_refuses="P", on_gloo=True),
    kind("mutates, returns nothing", "noout(Tensor x, Tensor(a!) y) -> ()",
         lambda x, y: _into(y, x), rule=same_dims(0, dims=COLUMNS, partial=True),
         fallback_refuses="P", rule_refuses="S(0)", on_gloo=True),
    kind("mutated Tensor[]", "bump(Tensor(a!)[] ys, Tensor x) -> ()", _bump,
         lambda t: ((t[:2], t[2]), {}), tensors=VALUES,
         rule=same_dims(0, dims=COLUMNS, partial=True), fallback_refuses="P",
         rule_refuses="S(0) mixed", on_gloo=True),
    kind("mutated Tensor?, and outputs",
         "track(Tensor x, Tensor(a!)? running, float momentum) -> (Tensor, Tensor)", _track,
         lambda t: ((t[0], t[1], 0.5), {}), lambda t: ((t[0], None, 0.5), {}),
         tensors=[numbers(7, 4), numbers(4)], fake=_track_shapes, rule=_track_rule,
         fallback_refuses="P", rule_refuses="P S(0)"),
    kind("two mutated and returned",
         "pair(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))",
         lambda x, y: (x.add_(y), y.mul_(2)), rule=same_dims(2, partial=True),
         fallback_refuses="P", rule_refuses="mixed"),
    kind("mutated twice over: one tensor as both arguments", "both_(Tensor(a!) x, Tensor y)"
         " -> Tensor(a!)", lambda x, y: x.add_(y.clone()), lambda t: ((t[0], t[0]), {}),
         tensors=VALUES[:1], rule=same_dims(partial=True), fallback_refuses="P"),
    kind("out=", "f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", _out,
         lambda t: ((t[0],), {"out": t[1]}), rule=same_dims(dims=COLUMNS, partial=True),
         fallback_refuses="P", rule_refuses="S(0)", on_gloo=True),
    kind("out=, a list", "g.out(Tensor x, *, Tensor(a!)[] out) -> ()",
         lambda x, *, out: _bump(out, x), lambda t: ((t[0],), {"out": t[1:]}), tensors=VALUES,
         rule=same_dims(0, dims=COLUMNS, partial=True), fallback_refuses="P",
         rule_refuses="S(0) mixed", on_gloo=True),
    kind("out=, a list and nothing else", "h.out(*, Tensor(a!)[] out) -> ()",
         lambda *, out: _bump(out, out[0].clone()), lambda t: ((), {"out": t}),
         tensors=VALUES[:2], rule=same_dims(0, dims=COLUMNS, partial=True),
         fallback_refuses="all", rule_refuses="S(0) mixed"),
    kind("mutated kwarg that is not called out", "acc(Tensor x, *, Tensor(a!) total) -> ()",
         lambda x, *, total: _into(total, x), lambda t: ((t[0],), {"total": t[1]}),
         rule=same_dims(0, dims=COLUMNS, partial=True), fallback_refuses="P",
         rule_refuses="S(0)"),
    kind("resizes what it writes to", "grow(Tensor(a!) x, int n) -> Tensor(a!)",
         lambda x, n: x.resize_(n, 4).fill_(1), lambda t: ((t[0], 9), {}), tensors=VALUES[:1],
         fallback_refuses="all", on_gloo=True, local=False),
    kind("out= of another size, resized", "fit.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
         _out, lambda t: ((t[0],), {"out": t[1]}), tensors=[numbers(7, 4), numbers(3, 4)],
         fallback_refuses="all", on_gloo=True, local=False),
    kind("in-place view", "flip_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.t_(),
         tensors=VALUES[:1], tags=[torch.Tag.inplace_view], fallback_refuses="all"),
)  # fmt: skip
