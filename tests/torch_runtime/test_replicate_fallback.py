"""The fallback `replicate`: right values at the price of gathering, or a refusal with a reason."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy

import dtensor_registry as dr
from dtensor_registry.errors import FallbackRefusedError, MutationError
from dtensor_registry.installation import FallbackWarning
from dtensor_registry.torch_runtime.decide import expand
from dtensor_registry.torch_runtime.dispatcher import propagator

R, S0, S1 = Replicate(), Shard(0), Shard(1)
ON_TWO_DIMS = list(itertools.product((R, S0, S1), repeat=2))


@torch.library.custom_op("trunk_fallback::mix", mutates_args=())
def mix(x: Tensor, y: Tensor) -> Tensor:
    # No dim may be cut: every element of the result depends on a whole column of y.
    return x * 2 + y.cumsum(0).flip(1)


@mix.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("trunk_fallback::stack_sums", mutates_args=())
def stack_sums(xs: list[Tensor], weight: float) -> Tensor:
    return torch.stack([x.sum() * weight for x in xs])


@stack_sums.register_fake
def _(xs: list[Tensor], weight: float) -> Tensor:
    return xs[0].new_empty(len(xs))


@torch.library.custom_op("trunk_fallback::bump", mutates_args=("x",))
def bump(x: Tensor) -> None:
    x.add_(1)


@torch.library.custom_op(
    "trunk_fallback::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


@noise.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


LIBRARY = torch.library.Library("trunk_fallback", "FRAGMENT")
LIBRARY.define("first_half(Tensor(a) x) -> Tensor(a)")
LIBRARY.impl("first_half", lambda x: x[: x.shape[0] // 2], "CompositeExplicitAutograd")
first_half = torch.ops.trunk_fallback.first_half


def install(mode: str, **fallback: Any) -> Any:
    return dr.install(
        allowed=["dtensor-registry-fallback"],
        fallback={"mode": mode, "order": ["replicate"], **fallback},
    )


@pytest.fixture
def silent(repository_plugins: None) -> Iterator[None]:
    with install("silent"):
        yield


def gathered(tensor: Any) -> Tensor:
    whole: Tensor = tensor.full_tensor().reconcile()
    return whole


def two(mesh: Any, x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, Any]:
    values = torch.arange(32.0).reshape(8, 4)
    return distribute_tensor(values, mesh, x), distribute_tensor(values.sin(), mesh, y)


def expected_of_two() -> Tensor:
    values = torch.arange(32.0).reshape(8, 4)
    return values * 2 + values.sin().cumsum(0).flip(1)


def test_two_sharded_inputs_give_right_values_replicated(silent: None, local_mesh: Any) -> None:
    expected = expected_of_two()
    x, y = two(local_mesh(2, 2), (S0, S1), (S0, S1))
    out = mix(x, y)
    assert out.placements == (R, R)
    torch.testing.assert_close(gathered(out), expected)


def chosen(op: Any, *tensors: Any) -> OpSpec:
    """Ask for the strategy of a call as torch's propagator does."""
    schema = OpSchema(op, tuple(OpStrategy([OpSpec(t._spec)]) for t in tensors), {})
    info = propagator().op_single_dim_strategy_funcs[op]
    strategy = expand(tensors[0].device_mesh, schema, info, tensors[0]._spec.tensor_meta)
    (choice,) = strategy(op, schema.args_meta, schema.kwargs_meta).strategies
    return choice


def all_replicate_by_hand(schema: OpSchema) -> OpStrategy:
    mesh = schema.get_mesh_from_args()
    whole = [
        DTensorSpec(mesh, (R,) * mesh.ndim, tensor_meta=given.strategies[0].output_spec.tensor_meta)
        for given in schema.args_strategy
    ]
    costs = [
        [redistribute_cost(source.output_spec, target) for source in given.strategies]
        for given, target in zip(schema.args_strategy, whole, strict=True)
    ]
    return OpStrategy([OpSpec(whole[0], whole, costs)])


def test_cost_and_values_are_those_of_an_all_replicate_strategy_for_any_placements(
    silent: None, local_mesh: Any
) -> None:
    op = mix._opoverload
    expected = expected_of_two()
    mesh = local_mesh(2, 2)
    for placements in itertools.product(ON_TWO_DIMS, repeat=2):
        x, y = two(mesh, *placements)
        torch.testing.assert_close(gathered(mix(x, y)), expected)
        schema = OpSchema(op, tuple(OpStrategy([OpSpec(t._spec)]) for t in (x, y)), {})
        (by_hand,) = all_replicate_by_hand(schema).strategies
        ours = chosen(op, x, y)
        assert ours.redistribute_cost == by_hand.redistribute_cost, placements
        assert ours.output_spec.placements == (R, R)
        pack = dr.OpStrategyPack(op, all_replicate_by_hand)
        with dr.implicit_strategy_context([pack]):
            torch.testing.assert_close(gathered(mix(x, y)), expected)


def test_a_list_of_tensors_is_gathered_tensor_by_tensor(silent: None, local_mesh: Any) -> None:
    mesh = local_mesh(2, 2)
    x, y = two(mesh, (S0, R), (R, S1))
    for weight in (1.0, 3.0):  # a Python number is part of torch's cache key
        for tensors in ([x, y], [y, x], [x], [x, y, x]):
            out = stack_sums(tensors, weight)
            by_hand = torch.stack([gathered(t).sum() * weight for t in tensors])
            torch.testing.assert_close(gathered(out), by_hand)


def test_a_partial_input_is_reduced_first(silent: None, local_mesh: Any) -> None:
    mesh = local_mesh(4)
    x, y = two(mesh, (R,), (R,))
    quarters = DTensor.from_local(x.to_local() / 4, mesh, [Partial()])
    torch.testing.assert_close(gathered(mix(quarters, y)), gathered(mix(x, y)))


REFUSED = {
    "a random op": (
        noise,
        "it draws random numbers, which would differ between ranks that must agree",
    ),
    "a view": (
        first_half.default,
        "its output is a view of an input, which is not replicated ((Shard(dim=0), Replicate()));"
        " a moved copy would not share memory. Redistribute to Replicate first",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_gathering_cannot_run_right_is_refused(
    silent: None, local_mesh: Any, kind: str
) -> None:
    op, reason = REFUSED[kind]
    name = str(getattr(op, "_opoverload", op))
    x, _ = two(local_mesh(2, 2), (S0, R), (R, R))
    with pytest.raises(FallbackRefusedError) as caught:
        op(x)
    assert str(caught.value) == (
        f"Operator {name} does not have a sharding strategy registered.\n"
        f"  fallback 'replicate' refused: {reason}\n"
        f"  Write a rule: SingleDimStrategy('{name}', rule); see docs/write-a-plugin.md\n"
        f"  See why:  dtensor-registry explain {name}"
    )


def test_what_an_op_writes_to_a_gathered_argument_is_written_back(
    silent: None, local_mesh: Any
) -> None:
    expected = torch.arange(32.0).reshape(8, 4) + 1
    x, _ = two(local_mesh(2, 2), (S0, R), (R, R))
    bump(x)
    assert x.placements == (S0, R)
    torch.testing.assert_close(gathered(x), expected)


def test_a_write_to_a_partial_argument_is_refused(silent: None, local_mesh: Any) -> None:
    mesh = local_mesh(4)
    x, _ = two(mesh, (R,), (R,))
    quarters = DTensor.from_local(x.to_local() / 4, mesh, [Partial()])
    with pytest.raises(MutationError, match="'x'"):
        bump(quarters)


def test_a_view_of_a_replicated_tensor_is_one(silent: None, local_mesh: Any) -> None:
    x, _ = two(local_mesh(2, 2), (R, R), (R, R))
    half = first_half(x)
    half.add_(100)
    assert gathered(x)[:4].min() >= 100


def test_a_view_is_refused_for_sharded_inputs_also_after_it_ran_on_replicated_ones(
    silent: None, local_mesh: Any
) -> None:
    mesh = local_mesh(2, 2)
    first_half(two(mesh, (R, R), (R, R))[0])
    with pytest.raises(FallbackRefusedError, match="is a view"):
        first_half(two(mesh, (S0, R), (R, R))[0])


def test_it_is_off_by_default(repository_plugins: None, local_mesh: Any) -> None:
    x, y = two(local_mesh(4), (S0,), (S0,))
    with (
        dr.install(allowed=["dtensor-registry-fallback"]),
        pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"),
    ):
        mix(x, y)


def test_it_warns_once_per_op_and_says_what_it_costs(
    repository_plugins: None, local_mesh: Any
) -> None:
    mesh = local_mesh(4)
    x, y = two(mesh, (S0,), (R,))
    with install("warn"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            mix(x, y)
        mix(y, x)
    assert [str(warning.message) for warning in told if warning.category is FallbackWarning] == [
        "trunk_fallback.mix.default has no sharding strategy; fallback 'replicate' of"
        " dtensor-registry-fallback runs it and moves 1 input(s), 128 bytes once gathered, in"
        " every call like this one.\n"
        "  Write a rule:  SingleDimStrategy('trunk_fallback.mix.default', rule)\n"
        "  or say nothing:  DTENSOR_REGISTRY_FALLBACK__MODE=silent"
    ]


def test_in_mode_error_it_says_what_it_would_have_moved(
    repository_plugins: None, local_mesh: Any
) -> None:
    x, y = two(local_mesh(4), (S0,), (R,))
    with install("error"), pytest.raises(FallbackRefusedError) as caught:
        mix(x, y)
    assert caught.value.reasons == (
        (
            "replicate",
            "fallback.mode is 'error'; it would move 1 input(s), 128 bytes once gathered",
        ),
    )


@pytest.mark.parametrize(
    "globs", [{"include": ["aten.*"]}, {"exclude": ["trunk_fallback.*"]}, {"order": []}]
)
def test_an_op_that_the_settings_leave_out_has_no_fallback(
    repository_plugins: None, local_mesh: Any, globs: dict[str, Any]
) -> None:
    x, y = two(local_mesh(4), (S0,), (R,))
    with (
        install("silent", **globs),
        pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"),
    ):
        mix(x, y)


def test_an_op_that_torch_decomposes_is_left_to_torch(silent: None, local_mesh: Any) -> None:
    x, _ = two(local_mesh(4), (S0,), (R,))
    out = torch.nn.functional.silu(x)
    assert out.placements == (S0,)
