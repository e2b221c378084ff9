"""Kinds of ops by what goes in: lists, optional and keyword tensors, and everything else."""

from __future__ import annotations

import torch
from torch import Tensor

from dtensor_registry import pointwise
from tests.schema.kind import VALUES, dims_by, kind, numbers, same_dims

BOTH, COLUMNS = (0, 1), (1,)
"""Dims that may be cut: cumsum over dim 0 leaves only dim 1."""


def _step(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + y.cumsum(0)


def _optional(x: Tensor, y: Tensor | None = None) -> Tensor:
    return x * 2 if y is None else x * 2 + y


def _sum_of(xs: list[Tensor | None]) -> Tensor:
    return torch.stack([x for x in xs if x is not None]).sum(0)


def _doubled_or_summed(x: Tensor, summed: bool) -> Tensor:
    return x.cumsum(0) if summed else x * 2


def _number(x: Tensor, s: complex) -> Tensor:
    # A complex number gives another dtype.
    return x * s


INPUTS = (
    kind("functional", "fn(Tensor x, Tensor y) -> Tensor", _step,
         rule=same_dims(dims=COLUMNS, partial=True), on_gloo=True),
    kind("Tensor[], of any length", "lst(Tensor[] xs) -> Tensor", _sum_of,
         lambda t: ((t[:2],), {}), lambda t: ((t,), {}),
         tensors=VALUES, rule=same_dims(partial=True), on_gloo=True),
    kind("Tensor[] that may be empty", "tail(Tensor x, Tensor[] ys) -> Tensor",
         lambda x, ys: _sum_of([x, *ys]),
         lambda t: ((t[0], []), {}), lambda t: ((t[0], [t[1]]), {}), rule=same_dims()),
    kind("Tensor?", "opt(Tensor x, Tensor? y=None) -> Tensor", _optional,
         lambda t: ((t[0], t[1]), {}), lambda t: ((t[0], None), {}), lambda t: ((t[0],), {}),
         rule=same_dims(partial=True)),
    kind("Tensor?[], None first", "optl(Tensor?[] xs) -> Tensor", _sum_of,
         lambda t: (([None, t[0], t[1]],), {}), lambda t: (([t[0], None],), {}),
         tensors=VALUES[:2], rule=same_dims(partial=True), on_gloo=True),
    kind("str and int before the first tensor", "later(str how, int k, Tensor x) -> Tensor",
         lambda how, k, x: x * k if how == "times" else x.cumsum(k),
         lambda t: (("times", 3, t[0]), {}), lambda t: (("sum", 0, t[0]), {}),
         lambda t: (("sum", 1, t[0]), {}), tensors=VALUES[:1],
         rule=dims_by(lambda how, k, x: BOTH if how == "times" else [1 - k]), on_gloo=True),
    kind("kwarg-only tensor", "kwt(Tensor x, *, Tensor y) -> Tensor", lambda x, *, y: _step(x, y),
         lambda t: ((t[0],), {"y": t[1]}),
         rule=same_dims(dims=COLUMNS, partial=True), on_gloo=True),
    kind("optional kwarg tensor", "kw(Tensor x, *, Tensor? bias=None) -> Tensor",
         lambda x, *, bias=None: _optional(x, bias),
         lambda t: ((t[0],), {"bias": t[1]}), lambda t: ((t[0],), {}),
         lambda t: ((t[0],), {"bias": None}), rule=same_dims(partial=True)),
    kind("kwarg Tensor[]", "kwl(Tensor x, *, Tensor[] ys) -> Tensor",
         lambda x, *, ys: _sum_of([x, *ys]),
         lambda t: ((t[0],), {"ys": [t[1]]}), lambda t: ((t[0],), {"ys": [t[1], t[0]]}),
         rule=same_dims(partial=True)),
    kind("only kwarg tensors", "kwo(*, Tensor x, Tensor y) -> Tensor", lambda *, x, y: _step(x, y),
         lambda t: ((), {"x": t[0], "y": t[1]}), lambda t: ((), {"y": t[1], "x": t[0]}),
         rule=same_dims(dims=COLUMNS)),
    kind("rows depend on a bool", "flag(Tensor x, bool f) -> Tensor", _doubled_or_summed,
         lambda t: ((t[0], False), {}), lambda t: ((t[0], True), {}), tensors=VALUES[:1],
         rule=dims_by(lambda x, f: COLUMNS if f else BOTH), on_gloo=True),
    kind("rows depend on a str", "how(Tensor x, str how) -> Tensor",
         lambda x, how: _doubled_or_summed(x, how == "sum"),
         lambda t: ((t[0], "times"), {}), lambda t: ((t[0], "sum"), {}), tensors=VALUES[:1],
         rule=dims_by(lambda x, how: COLUMNS if how == "sum" else BOTH)),
    kind("rows depend on a float", "scale(Tensor x, float by) -> Tensor",
         lambda x, by: _doubled_or_summed(x, by < 0),
         lambda t: ((t[0], 1.0), {}), lambda t: ((t[0], -1.0), {}), tensors=VALUES[:1],
         rule=dims_by(lambda x, by: COLUMNS if by < 0 else BOTH)),
    kind("rows depend on an int[]", "along(Tensor x, int[] dims) -> Tensor",
         lambda x, dims: x.sum(list(dims), keepdim=True) + x,
         lambda t: ((t[0], [1]), {}), lambda t: ((t[0], [0]), {}), lambda t: ((t[0], [0, 1]), {}),
         tensors=VALUES[:1], rule=dims_by(lambda x, dims: [d for d in BOTH if d not in dims])),
    kind("rows depend on a kwarg-only bool", "kwflag(Tensor x, *, bool f=False) -> Tensor",
         lambda x, *, f=False: _doubled_or_summed(x, f),
         lambda t: ((t[0],), {}), lambda t: ((t[0],), {"f": True}),
         lambda t: ((t[0],), {"f": False}), tensors=VALUES[:1],
         rule=dims_by(lambda x, *, f=False: COLUMNS if f else BOTH), on_gloo=True),
    kind("Scalar", "number(Tensor x, Scalar s) -> Tensor", _number,
         lambda t: ((t[0], 2), {}), lambda t: ((t[0], 2.5), {}), lambda t: ((t[0], True), {}),
         tensors=VALUES[:1], rule=same_dims()),
    kind("complex Scalar", "complex_number(Tensor x, Scalar s) -> Tensor", _number,
         lambda t: ((t[0], 2), {}), lambda t: ((t[0], 1 + 2j), {}), tensors=VALUES[:1],
         rule=same_dims()),
    kind("kwarg dtype", "typed(Tensor x, *, ScalarType? dtype=None) -> Tensor",
         lambda x, *, dtype=None: x.to(dtype or torch.float64, copy=True),
         lambda t: ((t[0],), {}), lambda t: ((t[0],), {"dtype": torch.int32}), tensors=VALUES[:1],
         rule=same_dims()),
    kind("kwarg Generator", "gen(Tensor x, *, Generator? generator=None) -> Tensor",
         lambda x, *, generator=None: x + 1,
         lambda t: ((t[0],), {}), lambda t: ((t[0],), {"generator": torch.Generator()}),
         tensors=VALUES[:1], rule=same_dims()),
    kind("SymInt", "tile(Tensor x, SymInt n) -> Tensor", lambda x, n: x.repeat(1, n),
         lambda t: ((t[0], 2), {}), lambda t: ((t[0], 3), {}), tensors=VALUES[:1],
         rule=same_dims(dims=(0,))),
    kind("int tensors", "ints(Tensor x, Tensor i) -> Tensor", _step,
         tensors=[numbers(7, 4, dtype=torch.int64), numbers(7, 4, step=5, dtype=torch.int32)],
         rule=same_dims(dims=COLUMNS, partial=True)),
    kind("0-dim tensors", "zero(Tensor x, Tensor y) -> Tensor", lambda x, y: x * 2 + y,
         tensors=[torch.tensor(3.0), torch.tensor(4.0)], rule=same_dims(partial=True)),
    kind("a tensor that is broadcast", "spread(Tensor x, Tensor b) -> Tensor", lambda x, b: x + b,
         tensors=[numbers(7, 4), numbers(4)], rule=pointwise(linear=[(0, 1)])),
    kind("the same tensor twice", "twice(Tensor x, Tensor y) -> Tensor", _step,
         lambda t: ((t[0], t[0]), {}), tensors=VALUES[:1],
         rule=same_dims(dims=COLUMNS, partial=True)),
    kind("a plain number tensor among DTensors", "plain(Tensor x, Tensor y) -> Tensor",
         lambda x, y: x * y, lambda t: ((t[0], torch.tensor(2.0)), {}), tensors=VALUES[:1],
         rule=pointwise(linear=[(0,), (1,)])),
)  # fmt: skip
