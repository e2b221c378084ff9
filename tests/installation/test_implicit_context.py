"""`implicit_strategy_context`: strategies for the length of a block, and not a call longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry.errors import FallbackRefusedError, InvalidContributionError
from dtensor_registry.installation import FallbackWarning, OpStrategyPack

R, S0, S1 = Replicate(), Shard(0), Shard(1)


def error_of(name: str) -> str:
    return rf"^Operator mylib\.{name}\.default does not have a sharding strategy registered\.(\n|$)"


@torch.library.custom_op("mylib::numpy_sin", mutates_args=())
def numpy_sin(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@torch.library.custom_op("mylib::numpy_cos", mutates_args=())
def numpy_cos(x: Tensor) -> Tensor:
    return torch.from_numpy(np.cos(x.numpy()))


@torch.library.custom_op("mylib::numpy_wave", mutates_args=())
def numpy_wave(x: Tensor) -> tuple[Tensor, int, Tensor]:
    return torch.sin(x), x.dim(), torch.cos(x)


@torch.library.custom_op("mylib::numpy_split", mutates_args=())
def numpy_split(x: Tensor) -> list[Tensor]:
    return [x.clone(), x + 1]


@torch.library.custom_op("mylib::numpy_bump", mutates_args=("x",))
def numpy_bump(x: Tensor) -> None:
    x.add_(1)


@numpy_sin.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@numpy_cos.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@numpy_wave.register_fake
def _(x: Tensor) -> tuple[Tensor, int, Tensor]:
    return torch.empty_like(x), x.dim(), torch.empty_like(x)


@numpy_split.register_fake
def _(x: Tensor) -> list[Tensor]:
    return [torch.empty_like(x), torch.empty_like(x)]


@pytest.fixture
def x(local_mesh: Any) -> Any:
    values = torch.arange(32.0).reshape(8, 4)
    return distribute_tensor(values, local_mesh(2, 2), [S0, S1])


@pytest.mark.parametrize("packs", [[3], ["mylib.numpy_sin"], 3, "mylib.numpy_sin"])
def test_what_is_no_pack_is_refused_with_what_to_write(packs: Any) -> None:
    block = dr.implicit_strategy_context(packs)
    with pytest.raises(InvalidContributionError) as caught, block:
        pass
    assert "takes a list of OpStrategyPack, not " in str(caught.value)
    assert "implicit_strategy_context([OpStrategyPack(op)])" in str(caught.value)


def test_a_single_pack_outside_of_a_list_is_refused() -> None:
    block = dr.implicit_strategy_context(OpStrategyPack(numpy_sin))  # type: ignore[arg-type]
    with pytest.raises(InvalidContributionError, match="takes a list"), block:
        pass


def test_the_warning_of_a_fallback_points_at_the_line_of_the_call(x: Any) -> None:
    with dr.implicit_strategy_context(), pytest.warns(FallbackWarning) as told:
        numpy_sin(x)
    line = numpy_sin_line()
    assert [(warning.filename, warning.lineno) for warning in told] == [(__file__, line)]


def numpy_sin_line() -> int:
    """Find the line of the test above that calls the op."""
    code = test_the_warning_of_a_fallback_points_at_the_line_of_the_call.__code__
    return code.co_firstlineno + 2


def test_without_a_list_every_op_without_a_rule_runs_inside_and_none_outside(
    repository_plugins: None, x: Any
) -> None:
    with pytest.raises(NotImplementedError, match=error_of("numpy_sin")):
        numpy_sin(x)
    with dr.implicit_strategy_context():
        for op, same in ((numpy_sin, torch.sin), (numpy_cos, torch.cos)):
            with pytest.warns(FallbackWarning):
                out = op(x)
            assert out.placements == (R, R)
            expected = same(torch.arange(32.0).reshape(8, 4))
            torch.testing.assert_close(out.full_tensor(), expected)
    for op, name in ((numpy_sin, "numpy_sin"), (numpy_cos, "numpy_cos")):
        with pytest.raises(NotImplementedError, match=error_of(name)):
            op(x)


def test_with_a_list_only_its_ops_run(repository_plugins: None, x: Any) -> None:
    pack = dr.OpStrategyPack(numpy_sin._opoverload, dr.replicate_op_strategy)
    with dr.implicit_strategy_context([pack]):
        assert numpy_sin(x).placements == (R, R)
        with pytest.raises(NotImplementedError, match=error_of("numpy_cos")):
            numpy_cos(x)
    with pytest.raises(NotImplementedError, match=error_of("numpy_sin")):
        numpy_sin(x)


def test_an_empty_list_is_a_list(repository_plugins: None, x: Any) -> None:
    with (
        dr.implicit_strategy_context([]),
        pytest.raises(NotImplementedError, match=error_of("numpy_sin")),
    ):
        numpy_sin(x)


def test_an_exception_inside_ends_the_context_as_well(x: Any) -> None:
    pack = dr.OpStrategyPack(numpy_sin._opoverload)
    with pytest.raises(KeyError), dr.implicit_strategy_context([pack]):
        raise KeyError
    with pytest.raises(NotImplementedError, match=error_of("numpy_sin")):
        numpy_sin(x)


def test_an_inner_context_rules_until_it_ends(x: Any) -> None:
    def refuse(schema: Any) -> Any:
        raise FallbackRefusedError("mylib.numpy_sin.default", [("inner", "it says no")])

    op = numpy_sin._opoverload
    with dr.implicit_strategy_context([dr.OpStrategyPack(op)]):
        numpy_sin(x)
        with (
            dr.implicit_strategy_context([dr.OpStrategyPack(op, refuse)]),
            pytest.raises(FallbackRefusedError, match="it says no"),
        ):
            numpy_sin(x)
        assert numpy_sin(x).placements == (R, R)


def test_an_error_that_a_strategy_function_raises_is_not_its_own_cause(x: Any) -> None:
    def refuse(schema: Any) -> Any:
        raise NotImplementedError("not today")

    op = numpy_sin._opoverload
    with (
        dr.implicit_strategy_context([dr.OpStrategyPack(op, refuse)]),
        pytest.raises(NotImplementedError, match="not today") as caught,
    ):
        numpy_sin(x)
    assert caught.value.__cause__ is not caught.value


LIBRARY = torch.library.Library("mylib", "FRAGMENT")
LIBRARY.define("composite(Tensor x) -> Tensor")
LIBRARY.impl("composite", lambda x: numpy_sin(x) * 2, "CompositeImplicitAutograd")


def test_a_composite_op_whose_parts_are_refused_ends_with_an_error(x: Any) -> None:
    def refuse(schema: Any) -> Any:
        raise NotImplementedError("not today")

    pack = dr.OpStrategyPack(numpy_sin._opoverload, refuse)
    with (
        dr.implicit_strategy_context([pack]),
        torch.inference_mode(),
        pytest.raises(NotImplementedError, match=error_of("composite")),
    ):
        torch.ops.mylib.composite(x)


def test_it_can_replace_torchs_own_rule_for_the_length_of_the_block(x: Any) -> None:
    assert torch.relu(x).placements == (S0, S1)
    with dr.implicit_strategy_context([dr.OpStrategyPack(torch.ops.aten.relu.default)]):
        assert torch.relu(x).placements == (R, R)
    assert torch.relu(x).placements == (S0, S1)


def test_a_strategy_function_of_torchs_kind_gives_an_op_with_other_returns_its_tensors(
    x: Any,
) -> None:
    with dr.implicit_strategy_context([dr.OpStrategyPack(numpy_wave._opoverload)]):
        sine, rank, cosine = numpy_wave(x)
    values = torch.arange(32.0).reshape(8, 4)
    assert rank == 2
    torch.testing.assert_close(sine.full_tensor(), values.sin())
    torch.testing.assert_close(cosine.full_tensor(), values.cos())


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (numpy_split, "it returns a list of tensors, of a length that a strategy function cannot"),
        (numpy_bump, "it writes to x, and torch would write to a moved copy"),
    ],
)
def test_what_a_strategy_function_cannot_run_right_is_refused(x: Any, op: Any, reason: str) -> None:
    with (
        dr.implicit_strategy_context([dr.OpStrategyPack(op._opoverload)]),
        pytest.raises(FallbackRefusedError, match=reason),
    ):
        op(x)
