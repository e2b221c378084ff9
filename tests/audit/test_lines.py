"""Each call is laid to the line of the program that it comes from, in both passes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def of(mesh: DeviceMesh, *placements: Any) -> DTensor:
    return DTensor.from_local(torch.ones(4, 4), mesh, placements)


def line_of(code: str) -> int:
    """Find a line of this file by what it says."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]
    return next(n for n, line in enumerate(lines, start=1) if line.strip() == code)


def places(record: Any, op: str) -> dict[tuple[int, bool], int]:
    """Line and pass -> calls."""
    (row,) = [row for row in record.rows if row.op == op]
    for found in row.lines:
        assert found.line.file == __file__
    return {(found.line.line, found.backward): found.calls for found in row.lines}


def test_calls_are_counted_line_by_line(mesh: DeviceMesh) -> None:
    x = of(mesh, Shard(0))
    with dr.audit() as record:
        for _ in range(3):
            torch.relu(x)
        x.relu()
    assert places(record, "aten.relu.default") == {
        (line_of("torch.relu(x)"), False): 3,
        (line_of("x.relu()"), False): 1,
    }


def test_a_call_of_the_backward_pass_is_laid_to_the_line_of_the_forward_pass(
    mesh: DeviceMesh,
) -> None:
    x = of(mesh, Shard(0)).detach().requires_grad_()
    with dr.audit() as record:
        y = torch.sigmoid(x)
        z = y.tanh()
        z.sum().backward()
    assert places(record, "aten.sigmoid_backward.default") == {
        (line_of("y = torch.sigmoid(x)"), True): 1
    }
    assert places(record, "aten.tanh_backward.default") == {(line_of("z = y.tanh()"), True): 1}


def test_a_hook_of_the_program_in_the_backward_pass_is_a_line_of_its_own(mesh: DeviceMesh) -> None:
    x = of(mesh, Shard(0)).detach().requires_grad_()
    x.register_hook(lambda gradient: gradient.cos())
    with dr.audit() as record:
        torch.sigmoid(x).sum().backward()
    hook = "x.register_hook(lambda gradient: gradient.cos())"
    assert places(record, "aten.cos.default") == {(line_of(hook), False): 1}


def test_collectives_that_the_program_asks_for_have_their_lines(mesh: DeviceMesh) -> None:
    x = of(mesh, Shard(0))
    with dr.audit() as record:
        x.redistribute(placements=[Replicate()])
        x.full_tensor()
    assert places(record, "(redistribute)") == {
        (line_of("x.redistribute(placements=[Replicate()])"), False): 1,
        (line_of("x.full_tensor()"), False): 1,
    }


def test_what_an_op_moves_is_told_as_from_and_to(mesh: DeviceMesh) -> None:
    left = of(mesh, Shard(0))
    right = DTensor.from_local(torch.ones(8, 2), mesh, [Shard(1)])
    with dr.audit() as record:
        torch.add(left, right)
    (row,) = record.rows
    assert (dict(row.moved), dict(row.collectives), row.bytes) in [
        ({"S(0) -> S(1)": 1}, {"all_gather": 1}, 64),
        ({"S(1) -> S(0)": 1}, {"all_gather": 1}, 64),
        ({"S(0) -> R": 1, "S(1) -> R": 1}, {"all_gather": 2}, 128),
    ]


def test_an_audit_inside_an_audit_leaves_both_complete(mesh: DeviceMesh) -> None:
    x = of(mesh, Shard(0))
    with dr.audit() as outer:
        torch.relu(x)
        with dr.audit() as inner:
            torch.relu(x)
        torch.relu(x)
    assert [(row.op, row.calls) for row in outer.rows] == [("aten.relu.default", 3)]
    assert [(row.op, row.calls) for row in inner.rows] == [("aten.relu.default", 1)]


def test_the_table_says_it_all(mesh: DeviceMesh) -> None:
    x = of(mesh, Shard(0))
    with dr.audit() as record:
        print(x.exp().shape, x.full_tensor().shape)
    where = record.rows[0].lines[0].line
    assert where.line == line_of("print(x.exp().shape, x.full_tensor().shape)")
    assert record.table().splitlines() == [
        "op                 calls   decided by    moved   collectives    bytes   line",
        f"(redistribute)     1       the program           1 all_gather   64      {where}",
        f"aten.exp.default   1       torch                                0       {where}",
        "",
        "1 op, 1 call: torch 1; 64 bytes moved",
    ]
    assert str(record) == record.table()
