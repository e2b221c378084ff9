"""Each correction beside bare torch: bare torch is wrong, and with the correction it is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._prims  # registers torch.ops.prims
from packaging.version import Version
from torch.distributed.tensor import DTensor

import dtensor_registry as dr
from dtensor_registry._torch.checking.local_ranks import of_pieces, on_every_rank, plainly
from dtensor_registry.placements import Partial, Placement, Shard, parse_placements
from dtensor_registry.testing.only import only
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry.verification.pieces import reduce_parts
from dtensor_registry_corrections.correction import Correction, Example
from dtensor_registry_corrections.rows import CORRECTIONS

RELEASE = Version(torch.__version__).release
CASES = [
    pytest.param(correction, op, example, id=f"{op}: {example.row}: {example}")
    for correction in CORRECTIONS
    for op in correction.ops
    for example in correction.examples
]


@pytest.fixture
def mesh(local_mesh: Any) -> Iterator[Any]:
    return local_mesh(2)


def is_needed(correction: Correction) -> bool:
    first, last = Version(correction.since).release, Version(correction.until).release
    return first <= RELEASE <= last


def placed(row: str) -> tuple[list[Placement], list[Placement]]:
    outputs, inputs = row.split(" <- ")
    return list(parse_placements(outputs)), list(parse_placements(inputs))


def tensors(example: Example, mesh: Any) -> tuple[list[torch.Tensor], list[DTensor]]:
    """Make the tensors of an example: whole, and as the row wants them on two ranks."""
    wholes, cut = [], []
    held = [rank.call(at)[0] for at, rank in enumerate((example, example))]
    pairs = [pair for pair in zip(*held, strict=True) if isinstance(pair[0], torch.Tensor)]
    for parts, placement in zip(pairs, placed(example.row)[1], strict=True):
        whole, pieces = parts[0], list(parts)
        if isinstance(placement, Partial):
            whole = reduce_parts(pieces, placement.reduce_op)
        elif isinstance(placement, Shard):
            pieces = list(whole.tensor_split(2, placement.tensor_dim))
        wholes.append(whole)
        cut.append(of_pieces(pieces, whole, (placement,), mesh))
    return wholes, cut


def run(op: Any, name: str, example: Example, given: list[Any], out: Any) -> Any:
    args, kwargs = example.call()
    left = iter(given)
    called = [next(left) if isinstance(arg, torch.Tensor) else arg for arg in args]
    if name.endswith("out"):
        kwargs = {**kwargs, "out": out}
    if "_foreach_" in name:
        called = [[arg] if isinstance(arg, torch.Tensor) else arg for arg in called]
    result = op(*called, **kwargs)
    return result[0] if isinstance(result, (list, tuple)) else result


def outcome(op: Any, name: str, example: Example, mesh: Any) -> tuple[str, Any, Any]:
    """Say whether DTensor gives what one process gives."""
    wholes, cut = tensors(example, mesh)
    with plainly():
        wanted = run(op, name, example, [whole.clone() for whole in wholes], wholes[0].clone())
    try:
        got = run(op, name, example, cut, tensors(example, mesh)[1][0])
        parts = on_every_rank(got.full_tensor())
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return "refused", str(error), wanted
    for part in parts:
        if part.shape != wanted.shape or not torch.allclose(part, wanted, equal_nan=True):
            return "wrong", part, wanted
    return "right", parts[0], wanted


@pytest.mark.parametrize(("correction", "op", "example"), CASES)
def test_bare_torch_is_wrong_and_the_corrected_rule_is_right(
    mesh: Any, correction: Correction, op: str, example: Example
) -> None:
    overload = find_op(op)
    if overload is None:
        pytest.skip(f"torch {torch.__version__} has no {op}")
    bare = outcome(overload, op, example, mesh)
    if is_needed(correction):
        assert bare[0] == ("refused" if example.refused else "wrong"), bare
    with dr.install(only("dtensor-registry-corrections")):
        corrected = outcome(overload, op, example, mesh)
    if not is_needed(correction):
        assert corrected[0] == bare[0], corrected
        return
    in_place = op.partition(".")[2].partition(".")[0].endswith("_") or op.endswith("out")
    assert corrected[0] == ("refused" if in_place else "right"), corrected
