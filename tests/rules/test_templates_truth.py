"""Ground truth for every template, on real ops: each row gives what the whole run gives."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
import torch
from torch.nn import functional

from dtensor_registry.rules import (
    Rule,
    Signature,
    batched,
    bind,
    notation,
    passthrough,
    reduction,
    row,
    rows,
    tensor_inputs,
)
from dtensor_registry.rules.well_formed import for_any_groups, show_row
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry_kit import check, draw

aten = torch.ops.aten


def x(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return draw(shape, dtype, seed)


def y(*shape: int) -> torch.Tensor:
    return x(*shape, seed=1)


def whole(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)


def no_other(name: str) -> tuple[Rule, Signature]:
    raise AssertionError(f"nothing here is like another op, but {name} was asked for")


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rstd = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return x * rstd * weight, rstd


def sum_and_scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum(1), 2 * x


def with_seed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return 3 * x, torch.tensor([5, 7])


def largest(x: torch.Tensor, dims: Any = None, keepdim: bool = False) -> torch.Tensor:
    """Reduce as amax does, but find the largest of no elements, too: every rank may get none."""
    reduced = {dim % x.dim() for dim in (range(x.dim()) if dims is None else dims)}
    room = [end for dim in reversed(range(x.dim())) for end in (0, int(dim in reduced))]
    padded = functional.pad(x, room, value=-torch.inf)
    return torch.amax(padded, sorted(reduced), keepdim)


def smallest(x: torch.Tensor, dims: Any = None, keepdim: bool = False) -> torch.Tensor:
    return -largest(-x, dims, keepdim)


SORTED = torch.sort(x(4, 9, seed=2))[0]

Line: TypeAlias = tuple[Any, Any, list[tuple[Any, ...]]]
"""Op, rule, calls."""

NOTATION: list[Line] = [
    (
        torch.matmul,
        notation("b... m k, b... k n -> b... m n", reduce="k"),
        [(x(2, 3, 4, 5), y(3, 5, 6)), (x(4, 5), y(2, 5, 6)), (x(2, 1, 4, 5), y(3, 5, 6))],
    ),
    (aten.outer.default, notation("m, n -> m n"), [(x(4), y(5))]),
    (torch.cdist, notation("b... m d, b... n d -> b... m n"), [(x(2, 4, 3), y(2, 5, 3))]),
    (aten.topk.default, notation("b... n -> b... k, b... k", fixed="n k"), [(x(4, 6, 5), 2)]),
    (aten.max.dim, notation("b n -> b, b"), [(x(4, 6), 1)]),
    (largest, notation("b n -> b", reduce={"n": "max"}), [(x(4, 6), [1])]),
    (aten.cumsum.default, notation("b... n -> b... n", fixed="n"), [(x(4, 3, 6), 2)]),
    (aten.logsumexp.default, notation("b n -> b"), [(x(4, 6), [1])]),
    (torch.searchsorted, notation("b n, b k -> b k", fixed="n"), [(SORTED, y(4, 3))]),
    (aten.index_select.default, notation("n d, k -> k d"), [(x(6, 5), 0, whole(4))]),
    (functional.embedding, notation("... , v d -> ... d"), [(whole(2, 3), x(7, 4))]),
    (
        functional.scaled_dot_product_attention,
        notation("b... s d, b... t d, b... t e -> b... s e"),
        [(x(2, 3, 4, 5), y(2, 3, 6, 5), x(2, 3, 6, 7))],
    ),
    (rms_norm, notation("b... d, d -> b... d, b... 1", fixed="d"), [(x(2, 3, 4), y(4))]),
    (sum_and_scaled, notation("b n -> b, b n", reduce="n"), [(x(4, 6),)]),
    (with_seed, notation("... -> ..., _"), [(x(4, 6),)]),
    (split_heads, notation("b s (h d) -> b h s d"), [(x(4, 3, 6), 2)]),
    (merge_heads, notation("b h s d -> b s (h d)"), [(x(4, 3, 5, 6),)]),
    (torch.add, notation("..., ... -> ..."), [(x(4, 1), y(6)), (x(4, 6), x())]),
]

BATCHED: list[Line] = [
    (aten.bmm.default, batched(ins=[0, 0], outs=[0]), [(x(4, 3, 5), y(4, 5, 2))]),
    (torch.matmul, batched(ins=[-3, None], outs=[1]), [(x(2, 4, 3, 5), y(5, 6))]),
    (aten.max.dim, batched(ins=[1], outs=[0, 0]), [(x(4, 6), 0)]),
    (functional.linear, batched(ins=[0, None, None], outs=[0]), [(x(4, 5), y(3, 5), y(3))]),
    (aten.linalg_cholesky_ex.default, batched(ins=[0], outs=[0, 0]), [(x(4, 3, 3).abs(),)]),
    (aten.add.Tensor, batched(ins=[0, 0], outs=[0]), [(x(4, 3), y(1, 3))]),
    (with_seed, batched(ins=[0], outs=[0, None]), [(x(4, 3),)]),
]

PASSTHROUGH: list[Line] = [
    (aten.clone.default, passthrough(), [(x(4, 6),), (x(),)]),
    (aten.clone.default, passthrough(), [(whole(4, 6),)]),
    (aten.clone.default, passthrough(), [(x(4, 6) > 0.3,)]),
    (aten.clone.default, passthrough(), [(x(4, 6, dtype=torch.complex128),)]),
    (aten.alias.default, passthrough(), [(x(4, 6),)]),
    (aten.mul.Scalar, passthrough(partials=["sum", "avg"]), [(x(4, 6), 3.0)]),
    (aten.abs.default, passthrough(partials=[]), [(x(4, 6),)]),
]

BY_DIM = reduction(1, 2, "sum")
FLAGS = [(), ([1],), ([0, -1],), ([-2], True), (None,), (None, True)]

REDUCTION: list[Line] = [
    (aten.sum.dim_IntList, BY_DIM, [(x(4, 5, 6), *flags) for flags in FLAGS[1:]]),
    (aten.sum.dim_IntList, BY_DIM, [(x(4, 6), [])]),
    (aten.sum.dim_IntList, BY_DIM, [(x(), [])]),
    (aten.sum.dim_IntList, BY_DIM, [(whole(4, 6), [0])]),
    (aten.sum.dim_IntList, BY_DIM, [(x(4, 6) > 0, [0])]),
    (aten.sum.default, reduction(None, None, "sum"), [(x(4, 6),)]),
    (aten.mean.dim, reduction(1, 2, "mean"), [(x(4, 5, 6), *flags) for flags in FLAGS[1:]]),
    (aten.mean.default, reduction(None, None, "mean"), [(x(4, 6),)]),
    (largest, reduction(1, 2, "max"), [(x(4, 6), *f) for f in FLAGS[:4]]),
    (smallest, reduction(1, 2, "min"), [(x(4, 6), [0])]),
    (aten.prod.dim_int, reduction(1, 2, "product"), [(x(4, 6), 1), (x(4, 6), -2, True)]),
    (aten.any.dim, reduction(1, 2, "any"), [(x(4, 6), 1), (x(4, 6) > 0, 0)]),
    (aten.any.dims, reduction(1, 2, "any"), [(x(4, 6), [])]),
    (aten.all.default, reduction(None, None, "all"), [(x(4, 6),), (x(4, 6) > 0,)]),
    (aten.logsumexp.default, reduction(1, 2, None), [(x(4, 5, 6), [1]), (x(4, 6), [0], True)]),
    (aten.var.correction, reduction(1, "keepdim", None), [(x(4, 6), [0])]),
    (aten.max.dim, reduction(1, 2, None, outputs=2), [(x(4, 6), 0), (x(4, 6), 1, True)]),
    (aten.nansum.default, reduction(1, 2, "sum", partials=False), [(x(4, 6), [0])]),
    (
        aten.count_nonzero.dim_IntList,
        reduction(1, None, "sum", partials=False),
        [(x(4, 6), [1])],
    ),
]

NAMED: list[Line] = [
    (aten.mm.default, row(out="P(sum)", self="S(1)", mat2="S(0)"), [(x(4, 5), y(5, 6))]),
    (
        aten.max.dim,
        rows(row(out="S(0), S(0)", self="S(0)"), row(out="S(1), S(1)", self="S(1)")),
        [(x(4, 6, 5), 2)],
    ),
    (aten.cat.default, row(out="S(1)", tensors="S(1)"), [([x(4, 6), y(3, 6), y(2, 6)], 0)]),
    (
        aten.addmm.default,
        rows(notation("n, m k, k n -> m n"), row(out="P", self="P", mat1="S(1)", mat2="S(0)")),
        [(x(7), x(4, 5), y(5, 7))],
    ),
]


def named(*tables: list[Line]) -> list[Any]:
    return [
        pytest.param(*line, id=f"{line[0].__name__} {line[1]}")
        for table in tables
        for line in table
    ]


@pytest.mark.parametrize(
    ("op", "rule", "calls"), named(NOTATION, BATCHED, PASSTHROUGH, REDUCTION, NAMED)
)
def test_every_row_that_a_template_offers_is_proven(
    op: Any, rule: Any, calls: list[tuple[Any, ...]]
) -> None:
    if hasattr(op, "_schema"):
        rule = bind(rule, facts(op).signature, no_other)
    report = check(op, [(args, {}) for args in calls], rule, budget=0)
    offered = {
        for_any_groups(show_row(row, len(tensor_inputs(args, {}))))
        for args in calls
        for row in rule(op, args, {})
    }
    assert report.is_trusted, report
    assert offered, report
    assert offered - set(report.sound) == set(), report
