"""Ops whose result nobody can foresee run on whole tensors, or are refused and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import dtensor_registry as dr
from dtensor_registry.errors import FallbackRefusedError
from tests.schema.kind import numbers
from tests.schema.outcome import difference
from tests.schema.world import S0, R, local_ranks, on_mesh

ATEN = torch.ops.aten
LIBRARY = torch.library.Library("schema_unforeseen", "FRAGMENT")
OPS = torch.ops.schema_unforeseen


def define(schema: str, kernel: Any, fake: Any) -> None:
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"schema_unforeseen::{name}", fake, lib=LIBRARY)


def raising(*_: Any) -> Any:
    raise KeyError("a fake kernel with a fault")


def grow(x: Tensor, y: Tensor) -> None:
    y.resize_(y.shape[0] + 1, *y.shape[1:])


define("twice(Tensor x) -> Tensor", lambda x: x * 2, raising)
define("picky(Tensor x) -> Tensor", lambda x: x.view(5), raising)
define("half_(Tensor x) -> Tensor", lambda x: x / 2, torch.empty_like)
define("grow(Tensor x, Tensor(a!) y) -> ()", grow, raising)


@pytest.fixture
def mesh(repository_plugins: None) -> Iterator[DeviceMesh]:
    with local_ranks(2) as mesh, dr.install(fallback={"mode": "silent"}):
        yield mesh


def test_an_op_with_a_faulty_fake_kernel_runs_on_whole_tensors(mesh: DeviceMesh) -> None:
    value = numbers(8, 4)
    for _ in range(2):
        assert difference(OPS.twice(on_mesh(value, (S0,), mesh)), value * 2) is None


def test_what_is_wrong_with_a_call_is_said_by_the_op_itself(mesh: DeviceMesh) -> None:
    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 32"):
        OPS.picky(on_mesh(numbers(8, 4), (S0,), mesh))


def grow_on_gloo(rank: int) -> list[str]:
    """Say what comes of a write that changes a shape, of its argument's value and local shape."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    value, told = numbers(8, 4), []
    with dr.install(allowed=["dtensor-registry-fallback"], fallback={"mode": "silent"}):
        for placement in (R, S0):
            y = on_mesh(value, (placement,), mesh)
            try:
                OPS.grow(on_mesh(value, (S0,), mesh), y)
            except FallbackRefusedError as error:
                told.append(str(error))
            told.append(f"{tuple(y.to_local().shape)} {difference(y, value)}")
    return told


# A simulated rank keeps the shape of a tensor that its op resizes, so real ones are asked.
def test_a_write_that_changes_a_shape_is_refused_and_nothing_is_lost(
    repository_plugins: None, run_ranks: Any
) -> None:
    for replicated, kept, sharded, piece in run_ranks(grow_on_gloo, ranks=2, timeout=90):
        assert "'y': (8, 4) -> (9, 4)" in replicated
        assert "'y': (8, 4) -> (9, 4)" in sharded
        assert (kept, piece) == ("(8, 4) None", "(4, 4) None")


def test_the_limit_of_bytes_holds_there_too(repository_plugins: None) -> None:
    limit = {"mode": "silent", "max_bytes": 100}
    with local_ranks(2) as mesh, dr.install(fallback=limit):
        with pytest.raises(FallbackRefusedError, match=r"128 bytes, fallback\.max_bytes is 100"):
            OPS.twice(on_mesh(numbers(8, 4), (S0,), mesh))
        assert difference(OPS.twice(on_mesh(numbers(4, 4), (S0,), mesh)), numbers(4, 4) * 2) is None


def test_shapes_that_torchs_fake_kernel_tells_wrong_are_those_of_the_kernel(
    mesh: DeviceMesh,
) -> None:
    weight, indices, offsets = numbers(10, 6), torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2])
    expected = ATEN._embedding_bag_forward_only(weight, indices, offsets, False, 2)
    placed = [on_mesh(value, (S0,), mesh) for value in (weight, indices, offsets)]
    found = ATEN._embedding_bag_forward_only(*placed, False, 2)
    assert [tuple(t.shape) for t in found] == [tuple(t.shape) for t in expected]
    assert difference(found[0], expected[0]) is None


def test_an_out_form_whose_plain_form_has_no_meta_kernel_is_run(mesh: DeviceMesh) -> None:
    value = numbers(8, 4)
    low, high = (on_mesh(torch.zeros(()), (R,), mesh) for _ in range(2))
    ATEN._aminmax.out(on_mesh(value, (S0,), mesh), out0=low, out1=high)
    assert difference(low, value.min()) is None
    assert difference(high, value.max()) is None


def test_an_overload_that_is_named_as_if_it_wrote_to_outputs_is_run(mesh: DeviceMesh) -> None:
    op = ATEN._slow_conv2d_backward.output_mask
    values = [numbers(2, 3, 6, 6), numbers(2, 4, 6, 6), numbers(3, 4, 1, 1)]
    rest = ([1, 1], [1, 1], [0, 0], [True, True, True])
    expected = op(*values, *rest)
    found = op(*(on_mesh(value, (S0,), mesh) for value in values), *rest)
    for got, one in zip(found, expected, strict=True):
        assert difference(got, one) is None


def test_an_overload_that_writes_to_outputs_without_being_named_so_returns_them(
    mesh: DeviceMesh,
) -> None:
    op = ATEN.sigmoid_backward.grad_input
    upstream, output = numbers(8, 4), numbers(8, 4).sigmoid()
    out = on_mesh(torch.zeros(8, 4), (S0,), mesh)
    got = op(*(on_mesh(value, (S0,), mesh) for value in (upstream, output)), grad_input=out)
    assert got is out
    assert difference(out, ATEN.sigmoid_backward(upstream, output)) is None


def test_an_op_that_is_named_as_if_it_wrote_and_does_not_is_run(mesh: DeviceMesh) -> None:
    x = on_mesh(numbers(8, 4), (S0,), mesh)
    got = OPS.half_(x)
    assert got is not x
    assert difference(got, numbers(8, 4) / 2) is None
    assert difference(x, numbers(8, 4)) is None
