"""What a program registers by torch's public `register_sharding` is obeyed, whatever the op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import dtensor_registry as dr
from dtensor_registry.errors import BrokenPluginsError
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import table_entries
from dtensor_registry.torch_patch.third_party import overwritten, strangers
from dtensor_registry.torch_runtime.compat import TABLES
from dtensor_registry.torch_runtime.dispatcher import propagator
from tests.conftest import LocalMesh

R, S0, P = Replicate(), Shard(0), Partial()
aten = torch.ops.aten


@torch.library.custom_op("register_sharding_tests::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    """Multiply by a number; torch has no rule for it."""
    return x * by


@scale.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


# An op, how it is called, and how many tensors it takes.
CALLS: dict[str, tuple[Callable[[DTensor], Any], int]] = {
    "aten.relu.default": (torch.relu, 1),
    "aten.dot.default": (lambda x: torch.dot(x, x), 2),
    "aten.zeros_like.default": (torch.zeros_like, 1),
    "aten.ones_like.default": (torch.ones_like, 1),
    "aten.empty_like.default": (lambda x: torch.empty_like(x).zero_(), 1),
    "aten.slice_scatter.default": (lambda x: torch.slice_scatter(x, x[:2], 0, 0, 2), 2),
    "aten.hardswish.default": (torch.nn.functional.hardswish, 1),
    "register_sharding_tests.scale.default": (lambda x: scale(x, 2.0), 1),
}


def op_of(name: str) -> Any:
    space, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload)


def whole(tensors: int) -> Callable[..., Any]:
    """Make a sharding function that wants whole tensors, which no rule of anybody does."""

    def whole_only(*args: Any, **kwargs: Any) -> Any:
        return [([R], [R] * tensors + [None] * (len(args) + len(kwargs) - tensors))]

    return whole_only


def registering(name: str) -> Any:
    function = whole(CALLS[name][1])
    register_sharding(op_of(name))(function)
    return function


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Put back what a test registers: torch has no way to take it out."""
    kept = {name: dict(table_entries(name)) for name in TABLES}
    yield
    for name, entries in kept.items():
        table_entries(name).clear()
        table_entries(name).update(entries)


def plain(tensor: Any) -> torch.Tensor:
    """Give the value that all simulated ranks hold."""
    value: torch.Tensor = tensor.reconcile() if hasattr(tensor, "reconcile") else tensor
    return value


def on(mesh: Any, placement: Placement = S0) -> DTensor:
    return DTensor.from_local(torch.arange(2.0) + 1, mesh, [placement])


@pytest.mark.usefixtures("repository_plugins")
@pytest.mark.parametrize("before", [True, False], ids=["before install", "after install"])
@pytest.mark.parametrize("name", CALLS)
def test_it_is_obeyed_and_outlives_the_installation(
    name: str, before: bool, local_mesh: LocalMesh
) -> None:
    call = CALLS[name][0]
    mesh = local_mesh(2)
    x = on(mesh)
    expected = call(x.full_tensor())
    with torch.no_grad():
        if before:
            function = registering(name)
        with dr.install() as installation:
            if not before:
                with suppress(NotImplementedError):  # torch has nothing for the custom op
                    call(x)  # decided, and cached, by whoever has the op
                function = registering(name)
            result = call(x)
            assert [result.placements, LOAN.owner(op_of(name)).name] == [(R,), "this program"]
            torch.testing.assert_close(plain(result.to_local()), plain(expected))
            verdict = installation.resolution[name]
    assert verdict.winner is None
    line = function.__code__.co_firstlineno
    assert str(verdict).startswith(f"{name}: this program (")
    assert f"test_register_sharding.py:{line})" in str(verdict)
    # torch's own state rules: what it ignores alone, it ignores again.
    assert LOAN.layers == ()
    strategy = table_entries("op_strategy_funcs")[op_of(name)]
    assert strategy.args == (function,)
    assert table_entries("op_to_schema_info")[op_of(name)].needs_pytree


def test_torchs_tables_are_those_of_a_program_without_us() -> None:
    registering("aten.relu.default")
    alone = {name: dict(table_entries(name)) for name in TABLES}
    with dr.install(allowed=[]):
        assert {name: dict(table_entries(name)) for name in TABLES} != alone
    assert {name: dict(table_entries(name)) for name in TABLES} == alone
    assert "register_op_strategy" not in vars(propagator())


def test_every_thread_obeys(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    with dr.install(allowed=[]), ThreadPoolExecutor(1) as other:
        assert other.submit(torch.relu, x).result().placements == (S0,)
        registering("aten.relu.default")
        assert other.submit(torch.relu, x).result().placements == (R,)


def test_a_later_registration_of_the_program_replaces_the_earlier(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    registering("aten.relu.default")
    with dr.install(allowed=[]):
        assert torch.relu(x).placements == (R,)
        register_sharding(aten.relu.default)(lambda x: [([S0], [S0])])
        assert torch.relu(x).placements == (S0,)
        assert len([layer for layer in LOAN.layers if layer.program is not None]) == 1


def test_of_what_the_program_registers_in_either_way_the_latest_wins(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    registering("aten.relu.default")
    with dr.register_single_dim_strategy("aten.relu.default")(dr.pointwise()):
        assert torch.relu(x).placements == (S0,)
        registering("aten.relu.default")
        assert torch.relu(x).placements == (R,)


def test_a_pin_does_not_go_round_what_the_program_says(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    registering("aten.relu.default")
    with dr.install(allowed=[], pins={"aten.relu": "torch"}):
        assert torch.relu(x).placements == (R,)


def test_a_context_is_above_it_and_an_empty_one_obeys_it(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    registering("aten.relu.default")
    assert torch.relu(x).placements == (S0,)  # torch alone ignores it
    with dr.implicit_strategy_context([]):
        assert torch.relu(x).placements == (R,)
    assert torch.relu(x).placements == (S0,)


def test_every_argument_that_is_no_tensor_is_in_the_cache_key(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    seen = []

    @register_sharding(torch.ops.register_sharding_tests.scale.default)
    def by_number(x: Any, by: float) -> Any:
        seen.append(by)
        return [([R], [R, None])] if by > 2 else [([R], [R, None]), ([S0], [S0, None])]

    with dr.install(allowed=[]):
        assert [scale(x, by).placements for by in (1.0, 3.0, 1.0)] == [(S0,), (R,), (S0,)]


def test_explain_names_the_program_and_the_line() -> None:
    function = registering("aten.relu.default")
    told = dr.explain("aten.relu.default", "f32[8]@S(0)", mesh=2)
    line = f"test_register_sharding.py:{function.__code__.co_firstlineno}"
    first = told.providers[0]
    assert (first.name, first.decides) == ("this program", True)
    assert first.source.endswith(line)
    assert told.decided_by.startswith("this program (")
    assert told.outputs[0].placements == ("R",)
    assert [p.decides for p in told.providers].count(True) == 1


def test_it_is_no_other_code_to_doctor_and_nothing_is_overwritten() -> None:
    registering("aten.relu.default")
    with dr.install(allowed=[]):
        registering("aten.dot.default")
        assert (strangers(), overwritten()) == ([], [])


def test_the_fingerprint_of_the_process_tells_what_is_registered() -> None:
    with dr.install(allowed=[]):
        before = LOAN.parts()
        registering("aten.relu.default")
        ((name, value),) = set(LOAN.parts()) - set(before)
    assert name == "op aten.relu.default"
    assert value.startswith("this program, rule ")


def test_what_torchs_own_modules_register_is_torchs() -> None:
    function = whole(1)
    function.__module__ = "torch.somewhere"
    register_sharding(aten.relu.default)(function)
    with dr.install(allowed=[]) as installation:
        assert "aten.relu.default" not in installation.resolution
        assert LOAN.layers[-1].program is None


def test_a_plugin_that_registers_at_import_is_undone(fake_distribution: Any) -> None:
    plugin = """\
import torch
from dtensor_registry import hookimpl
from torch.distributed.tensor.experimental import register_sharding

@hookimpl
def provide_single_dim_strategy():
    return []

register_sharding(torch.ops.aten.relu.default)(lambda x: [])
"""
    fake_distribution("acme-rules", plugin)
    before = {name: dict(table_entries(name)) for name in TABLES}
    with dr.install(allowed=[]):
        with pytest.raises(BrokenPluginsError, match=r"in force by itself"):
            dr.install(allowed=["acme-rules"])
        assert [layer.program for layer in LOAN.layers] == [None]
    assert {name: dict(table_entries(name)) for name in TABLES} == before


def test_registering_inside_a_dispatch_is_refused(local_mesh: LocalMesh) -> None:
    x = on(local_mesh(2))
    before = {name: dict(table_entries(name)) for name in TABLES}

    def rule(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        registering("aten.dot.default")
        return []

    with (
        dr.register_single_dim_strategy("aten.relu.default")(rule),
        pytest.raises(RuntimeError, match=r"cannot register a sharding of aten\.dot\.default"),
    ):
        torch.relu(x)
    assert {name: dict(table_entries(name)) for name in TABLES} == before
