"""How authors name ops, and what is told when a part of a strategy cannot be what it should."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import dtensor_registry as dr
from dtensor_registry.discovery import PluginWarning
from dtensor_registry.errors import InvalidContributionError, SettingsError
from dtensor_registry.torch_patch.catalog import TorchCatalog
from dtensor_registry.torch_runtime.dispatcher import propagator


@torch.library.custom_op("trunk_names::f", mutates_args=())
def f(x: Tensor) -> Tensor:
    return x + 1


def no_rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return []


@pytest.mark.parametrize(
    ("op", "names"),
    [
        (f, ("trunk_names.f.default",)),
        (torch.ops.trunk_names.f, ("trunk_names.f",)),
        (torch.ops.trunk_names.f.default, ("trunk_names.f.default",)),
        ("trunk_names::f", ("trunk_names.f",)),
        ("trunk_names.f.default", ("trunk_names.f.default",)),
        ([f, torch.ops.aten.mm, "aten::bmm"], ("trunk_names.f.default", "aten.mm", "aten.bmm")),
    ],
)
def test_an_op_may_be_given_as_an_object_as_a_name_or_in_a_list(op: Any, names: Any) -> None:
    assert dr.SingleDimStrategy(op, no_rows).names == names


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            "mm",
            "'mm' is no op name: write 'namespace.op' or 'namespace.op.overload'",
        ),
        (
            "torch.ops.aten.mm.default",
            "'torch.ops.aten.mm.default' is no op name: write 'namespace.op' or"
            " 'namespace.op.overload'",
        ),
        ("aten.mm.", "'aten.mm.' is no op name: write 'namespace.op' or 'namespace.op.overload'"),
        (
            3,
            "3 is no op: give an overload, a packet, a custom op or a name such as"
            " 'aten.mm.default'",
        ),
        ([], "SingleDimStrategy(op=[]) names no op; name at least one"),
    ],
)
def test_what_names_no_op_is_told(op: Any, message: str) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        dr.SingleDimStrategy(op, no_rows)
    assert str(caught.value) == message


def test_a_rule_that_is_not_callable_is_told() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        dr.SingleDimStrategy("aten.mm.default", "mk,kn->mn")
    assert str(caught.value) == (
        "SingleDimStrategy(aten.mm.default): rule is a str, neither a function (op, args, kwargs)"
        " -> rows nor a template such as einsum('mk,kn->mn')"
    )


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_fallback_needs_a_name(name: Any) -> None:
    with pytest.raises(InvalidContributionError, match="FallbackStrategy needs a name"):
        dr.FallbackStrategy(name, no_rows)


def test_like_must_name_one_overload() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        dr.like("aten::mm")
    assert str(caught.value) == "like('aten.mm') must name one overload, e.g. 'aten.mm.default'"


@pytest.mark.parametrize(
    ("name", "overloads"),
    [
        ("aten.mm.default", ("aten.mm.default",)),
        ("aten.dot", ("aten.dot.default", "aten.dot.out")),
        ("aten.mm.no_such_overload", ()),
        ("aten.no_such_op", ()),
        ("no_such_namespace.f", ()),
        ("no_such_namespace.f.default", ()),
    ],
)
def test_a_name_stands_for_the_overloads_that_exist(name: str, overloads: Any) -> None:
    assert tuple(sorted(map(str, TorchCatalog().overloads(name)))) == overloads


def test_a_registration_can_be_called_as_the_rule_it_wraps() -> None:
    @dr.register_single_dim_strategy(f)
    def rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        return [[args, kwargs]]

    with rows:
        assert rows("op", (1,), {"a": 2}) == [[(1,), {"a": 2}]]


@pytest.mark.parametrize("variable", ["DTENSOR_REGISTRY_ORDER", "DTENSOR_REGISTRY_ON_CONFLICT"])
def test_a_registration_under_settings_that_cannot_be_used_is_a_settings_error(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "no json")
    with pytest.raises(SettingsError), dr.register_single_dim_strategy(f)(no_rows):
        pass


@pytest.mark.parametrize(
    ("op", "overload"),
    [
        (torch.ops.aten.relu, torch.ops.aten.relu.default),
        ("aten.relu.default", torch.ops.aten.relu.default),
        (f, torch.ops.trunk_names.f.default),
    ],
)
def test_a_pack_takes_ops_as_strategies_do(op: Any, overload: torch._ops.OpOverload) -> None:
    rules = propagator().op_strategy_funcs
    before = rules.get(overload)
    with dr.implicit_strategy_context([dr.OpStrategyPack(op)]):
        assert rules[overload] is dr.replicate_op_strategy
    assert rules.get(overload) is before


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("aten.negg.default", "did you mean 'aten.neg.default'?"),
        ("aten.negg", "did you mean 'aten.neg'?"),
    ],
)
def test_a_registration_for_an_op_that_torch_does_not_have_warns_at_its_line(
    op: str, said: str
) -> None:
    with pytest.warns(PluginWarning) as told:
        registration = dr.register_single_dim_strategy(op)(no_rows)
    registration.undo()
    (warning,) = told
    assert warning.filename == __file__
    assert str(warning.message).startswith("this process (")
    assert str(warning.message).endswith(f" has a rule for {op}, which torch does not have; {said}")


def test_a_registration_for_an_op_of_a_library_that_may_still_come_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dr.register_single_dim_strategy("trunk_names_later.f")(no_rows).undo()


@pytest.mark.parametrize("settings", [{"order": ["*"]}, "acme", 3])
def test_install_says_how_settings_are_passed(settings: Any) -> None:
    with pytest.raises(SettingsError, match=r"Write:  install\(order="):
        dr.install(settings)
    with pytest.raises(SettingsError, match=f"of type {type(settings).__name__} is no Settings"):
        dr.install(settings=settings)


def test_install_does_not_pass_over_what_stands_beside_ready_made_settings() -> None:
    with pytest.raises(SettingsError, match=r"order beside ready-made settings"):
        dr.install(dr.Settings(), order=["*"])


def test_a_template_that_is_registered_by_hand_stands_where_the_user_wrote_it() -> None:
    registration = dr.register_single_dim_strategy("trunk_names_later.f")(dr.pointwise())
    registration.undo()
    assert registration.strategy.source.file == __file__
