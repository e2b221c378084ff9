"""A rule that cannot be right is told at dispatch: the op, its owner's file and line, the row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.errors import NoValidRowError, RuleError

R, S0, S1 = Replicate(), Shard(0), Shard(1)

PLUGIN = """\
from torch.distributed.tensor import Shard
from dtensor_registry import ShardingPlaceholder as D, SingleDimStrategy, hookimpl

def rows(op, args, kwargs):
    return {returned}

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("trunk_wrong.scale.default", rows)]
"""


@torch.library.custom_op("trunk_wrong::scale", mutates_args=())
def scale(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@scale.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("trunk_wrong::scale_", mutates_args=("x",))
def scale_(x: Tensor, y: Tensor) -> None:
    x.mul_(y)


# What the rule returns, what is wrong with it, and the row that is shown. x has 2 dims, y has 1.
WRONG = {
    "a dim that the input does not have": (
        "[[Shard(0), Shard(2), Shard(0)]]",
        "input 0 has S(2), but is a 2-dim tensor",
        "[S(0), S(2), S(0)]",
    ),
    "a dim that broadcasting leaves out": (
        "[[D(1), D(1), D(1)]]",
        "input 1 has S(1), but is a 1-dim tensor",
        "[S?(1), S?(1), S?(1)]",
    ),
    "a negative dim": (
        "[[Shard(-1), Shard(-1), Shard(-1)]]",
        "output 0 has S(-1): tensor dims in rows are counted from the front",
        "[S(-1), S(-1), S(-1)]",
    ),
    "a negative dim of an input": (
        "[[D(1), D(-1), D(0)]]",
        "input 0 has S(-1): tensor dims in rows are counted from the front; for 2 dims write S(1)",
        "[S?(1), S?(-1), S?(0)]",
    ),
    "a row that is too short": (
        "[[D(0), D(0)]]",
        "the row has 2 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
        " 3 entries",
        "[S?(0), S?(0)]",
    ),
    "a row that is too long": (
        "[[D(0), D(0), D(0), D(0)]]",
        "the row has 4 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
        " 3 entries",
        "[S?(0), S?(0), S?(0), S?(0)]",
    ),
    "an empty row": (
        "[[]]",
        "the row has 0 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
        " 3 entries",
        "[]",
    ),
    "a second row that is wrong": (
        "[[D(1), D(1), D(0)], [D(0)]]",
        "the row has 1 entries, but the op has 1 tensor output(s) and 2 tensor input(s) here:"
        " 3 entries",
        "[S?(0)]",
    ),
    "a row of strings": (
        "[['S(0)', 'S(0)', 'R']]",
        "output 0 has 'S(0)' of type str, which is no placement; use Shard, ShardingPlaceholder,"
        " REPLICATE or Partial",
        "[S(0), S(0), R]",
    ),
    "placements that are no row": (
        "[D(0), D(0), D(0)]",
        "a row is a list of placements, this one is ShardingPlaceholder(dim=0, groups=None) of"
        " type ShardingPlaceholder",
        "ShardingPlaceholder(dim=0, groups=None)",
    ),
    "no placement for an input": (
        "[[D(0), D(0), None]]",
        "input 1 is a tensor, but has no placement (None)",
        "[S?(0), S?(0), None]",
    ),
    "nothing at all": ("None", "it returned a NoneType, not a list of rows", None),
    "a string": ("'S(0), S(0), R'", "it returned a str, not a list of rows", None),
    "an exception": ("{}['rank']", "it raised KeyError: 'rank'", None),
}


def shown(error: BaseException) -> str:
    """What the user sees: torch puts the call behind what the host said."""
    said, _, _ = str(error).partition("\n\nSharding propagation failed for")
    return said


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_rule_is_told_with_its_owner_and_the_row(
    fake_distribution: Any, local_mesh: Any, kind: str
) -> None:
    returned, problem, row = WRONG[kind]
    module = fake_distribution("wrong-rules", PLUGIN.format(returned=returned), version="0.3")
    mesh = local_mesh(4)
    x = distribute_tensor(torch.ones(8, 4), mesh, [S0])
    y = distribute_tensor(torch.ones(4), mesh, [R])
    with dr.install(allowed=["wrong-rules"]), pytest.raises(RuntimeError) as caught:
        scale(x, y)
    evidence = "" if row is None else f"\n  row:  {row}"
    assert shown(caught.value) == (
        f"the sharding rule for trunk_wrong.scale.default is wrong: {problem}\n"
        f"  rule of wrong-rules 0.3 (entry point 'wrong', {module}.py:4){evidence}\n"
        "  A row lists one placement per tensor output, then one per tensor input in schema"
        " order.\n"
        "  Until it is mended:  DTENSOR_REGISTRY_DISABLED='[\"wrong:trunk_wrong.scale.default\"]'"
    )
    assert isinstance(caught.value.__cause__, RuleError)


def test_the_setting_in_the_message_takes_the_op_from_the_plugin(
    fake_distribution: Any, local_mesh: Any
) -> None:
    fake_distribution("wrong-rules", PLUGIN.format(returned="None"))
    x = distribute_tensor(torch.ones(8, 4), local_mesh(4), [S0])
    with (
        dr.install(allowed=["wrong-rules"], disabled=["wrong:trunk_wrong.scale.default"]),
        pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"),
    ):
        scale(x, x)


def test_no_rows_at_all_leave_the_all_replicate_row(
    fake_distribution: Any, local_mesh: Any
) -> None:
    fake_distribution("wrong-rules", PLUGIN.format(returned="[]"))
    x = distribute_tensor(torch.ones(8, 4), local_mesh(4), [S0])
    with dr.install(allowed=["wrong-rules"]):
        assert scale(x, x).placements == (R,)


def test_a_row_that_cuts_a_dim_of_size_one_is_not_taken(
    fake_distribution: Any, local_mesh: Any
) -> None:
    fake_distribution("wrong-rules", PLUGIN.format(returned="[[D(0), D(0), D(0)]]"))
    mesh = local_mesh(4)
    values = torch.arange(32.0).reshape(8, 4)
    x = distribute_tensor(values, mesh, [S0])
    y = distribute_tensor(values[:1] + 1, mesh, [R])
    with dr.install(allowed=["wrong-rules"]):
        out = scale(x, y)
    assert out.placements == (R,)
    torch.testing.assert_close(out.full_tensor(), values * (values[:1] + 1))


def test_inputs_that_no_row_fits_are_told_with_the_reasons(local_mesh: Any) -> None:
    mesh = local_mesh(4)
    x = distribute_tensor(torch.ones(8, 4), mesh, [S0])
    y = distribute_tensor(torch.ones(8, 4), mesh, [R])

    def second_dim_only(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        return [[dr.ShardingPlaceholder(1)] * 2]

    line = second_dim_only.__code__.co_firstlineno
    with (
        dr.register_single_dim_strategy(scale_)(second_dim_only) as registration,
        pytest.raises(RuntimeError) as caught,
    ):
        scale_(x, y)
    assert isinstance(caught.value.__cause__, NoValidRowError)
    source = str(registration.strategy.rule.__code__.co_filename).rpartition("/")[2]
    told = shown(caught.value)
    assert told.startswith(
        "trunk_wrong.scale_.default: in-place operations that require placement changes are not"
        " supported. The input has placement (S(0)), and no row of the rule keeps it.\n"
    )
    assert f"{source}:{line}" in told
    assert told.partition("  inputs")[2] == (
        " (8, 4)@(S(0)), (8, 4)@(R) on mesh 4\n"
        "    () <- (R), (R): input 0 is 'x', which the op writes to, and must stay (S(0)), not"
        " become (R)\n"
        "    () <- (S(1)), (S(1)): input 0 is 'x', which the op writes to, and must stay (S(0)),"
        " not become (S(1))\n"
        "  Use the out-of-place form:  trunk_wrong.scale.default\n"
        "  Redistribute an input first, or leave the op to others:  undo() the registration\n"
        "  See why:  dtensor-registry explain trunk_wrong.scale_.default 'f32[8,4]@S(0)'"
        " 'f32[8,4]@R' --mesh 4"
    )


@pytest.mark.parametrize("shape", [(4,), (1, 4), (8, 1), (1, 1), (1,), ()], ids=str)
def test_the_pointwise_plugin_never_cuts_a_dim_that_is_broadcast(
    repository_plugins: None, local_mesh: Any, shape: tuple[int, ...]
) -> None:
    mesh = local_mesh(2, 2)
    values = torch.arange(32.0).reshape(8, 4)
    other = torch.arange(1.0, 33.0)[: torch.Size(shape).numel()].reshape(shape)
    expected = values + other
    with dr.install(allowed=["dtensor-registry-pointwise"]):
        for placements in ([S0, S1], [S0, S0], [S1, R], [S1, S0]):
            x = distribute_tensor(values, mesh, placements)
            y = distribute_tensor(other, mesh, [R, R])
            for out in (x + y, y + x):
                assert isinstance(out, DTensor)
                assert out.placements == tuple(placements)
                torch.testing.assert_close(out.full_tensor(), expected)
