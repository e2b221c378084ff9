"""Fills of pending sums: each rank's part takes the whole value, and the sum is a multiple of it.

Autograd fills so, too: the gradient of `addcdiv` begins with `empty_like(x).fill_(1)`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.distributed.tensor import Partial

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    PlacedCall,
    Refuse,
    SchemaInfo,
    SingleDimStrategy,
    amended,
)


def filled_sum(call: PlacedCall) -> Compute | Refuse | None:
    """Fill each rank's part of a pending sum with its share of the value."""
    tensor = call.tensors.get("out", call.tensors["self"])
    ranks = tensor.ranks(*(set(tensor.partials()) - set(tensor.partials("sum"))))
    if ranks == 1:
        return None
    divisible = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    if divisible or call.arguments["value"] % ranks == 0:
        return Compute(_fill_shares)
    return Refuse(
        f"{ranks} ranks cannot share an integer that they do not divide",
        "Redistribute it first:  x = x.redistribute(placements=[Replicate(), ...])",
    )


def _fill_shares(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, value = kwargs.get("out", args[0]), args[1]
    sizes = zip(target.placements, target.device_mesh.shape, strict=True)
    ranks = prod(size for placement, size in sizes if placement == Partial("sum"))
    with torch.no_grad():
        # An integer is a multiple of the ranks here, and stays one.
        is_whole = isinstance(value, int) and value % ranks == 0
        target.to_local().fill_(value // ranks if is_whole else value / ranks)
    return target


FILLS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        ["aten.fill_.Scalar", "aten.fill.Scalar_out"],
        amended(filled_sum, because="each rank's part of a pending sum takes the whole value"),
        # What is decided for other tensors does not depend on the value; fills of sums are not
        # cached. So a value that changes in each step costs no new decision.
        schema_info=SchemaInfo(static_argnum=2),
        shows=(
            Counterexample("P(sum)", (Held("float64", 1.0), 8), op="aten.fill_.Scalar"),
            Counterexample(
                "P(sum), P(sum)",
                (Held("float64", 1.0), 8),
                (("out", Held("float64", 1.0)),),
                op="aten.fill.Scalar_out",
                since="2.14.1",
            ),
        ),
    ),
)
"""A fill that is right on every placement."""
