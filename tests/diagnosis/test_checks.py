"""Each thing that can be wrong makes the check of it warn or fail, and says what to do."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

import dtensor_registry as dr
from dtensor_registry.cli import main
from dtensor_registry.diagnosis import Check, Checkup, examination, process_checks
from dtensor_registry.diagnosis.findings import judge
from dtensor_registry.discovery import load
from dtensor_registry.errors import UnsupportedTorchError
from dtensor_registry.torch_patch import compile_caches
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import ABSENT, read, store
from dtensor_registry.torch_patch.third_party import author_of
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry_kit.pytest_plugin.only import only

HERE = Path(__file__)
EXP = torch.ops.aten.exp.default
RENORM = torch.ops.aten.renorm.default

PLUGIN = """
    from dtensor_registry import SingleDimStrategy, hookimpl, like, pointwise

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy({op!r}, {rule})]
"""


@pytest.fixture
def plugin(fake_distribution: Any) -> Any:
    """Install a plugin with one rule: `plugin("acme-rules", "aten.exp.default") -> module`."""

    def make(distribution: str, op: str = "aten.exp.default", rule: str = "pointwise()") -> str:
        return str(fake_distribution(distribution, dedent(PLUGIN.format(op=op, rule=rule))))

    return make


def check(about: str, *distributions: str, **settings: Any) -> Check:
    return dr.doctor(only(*distributions, **settings))[about]


def other_rule(op_schema: Any) -> Any:
    raise NotImplementedError


def line_of(function: Any) -> str:
    return f"{HERE}:{function.__code__.co_firstlineno}"


def test_two_plugins_with_equal_right_to_an_op_fail_and_each_op_says_what_to_do(
    plugin: Any,
) -> None:
    plugin("acme-rules")
    plugin("other-rules")
    found = check("conflicts", "acme-rules", "other-rules")
    assert (found.state, found.told) == ("fail", "1 op(s) are claimed with equal right")
    assert found.details[0].startswith("aten.exp.default has 2 providers of equal rank.\n")
    assert 'DTENSOR_REGISTRY_PINS=\'{"aten.exp.default": "acme"}\'' in found.details[0]
    lenient = check("conflicts", "acme-rules", "other-rules", on_conflict="skip")
    assert (lenient.state, lenient.details) == ("warn", found.details)
    pinned = check("conflicts", "acme-rules", "other-rules", pins={"aten.exp.default": "acme"})
    assert (pinned.state, pinned.told) == ("ok", "none")


def test_a_broken_plugin_warns_where_settings_let_it_be_skipped(fake_distribution: Any) -> None:
    fake_distribution("bad-rules", "raise ValueError('not today')")
    assert check("plugins", "bad-rules").state == "fail"
    found = check("plugins", "bad-rules", on_plugin_error="skip")
    assert found.state == "warn"
    assert found.details[0].endswith("importing it raised ValueError: not today")


def test_two_plugins_of_one_name_are_told_by_their_distributions(fake_distribution: Any) -> None:
    fake_distribution("acme-rules", "", entry_point="acme")
    fake_distribution("other-rules", "", entry_point="acme")
    found = check("plugins", "acme-rules", "other-rules")
    assert found.state == "fail"
    assert found.next_step.endswith("""DTENSOR_REGISTRY_DISABLED='["acme-rules", "other-rules"]'""")


def test_no_plugin_at_all_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    found = check("plugins")
    assert (found.state, found.told) == ("warn", "0 active")
    assert found.next_step.startswith("pip install ")


def test_a_required_distribution_that_is_missing_fails(plugin: Any) -> None:
    plugin("acme-rules")
    found = check("plugins", "acme-rules", required=("acme-rules>=2", "none-such"))
    assert found.state == "fail"
    assert [detail.splitlines()[0] for detail in found.details] == [
        "the settings require 'acme-rules>=2', but acme-rules 1.0 is installed.",
        "the settings require 'none-such', but no active plugin comes from it; active: acme-rules.",
    ]


def test_a_plugin_that_loads_slowly_warns(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin("acme-rules")
    monkeypatch.setattr(load, "SLOW", 0.0)
    found = check("plugins", "acme-rules")
    assert found.state == "warn"
    assert found.details[0].endswith("to load, on every rank")


def test_unknown_names_warn_and_unusable_pins_fail(plugin: Any) -> None:
    plugin("acme-rules")
    order = check("settings", "acme-rules", order=("acmee", "*", "torch"))
    assert (order.state, order.told) == ("warn", "other than by default: order, allowed")
    assert "names 'acmee', which is not installed" in order.details[0]
    absent = check("settings", "acme-rules", pins={"aten.exp.default": "acmee"})
    assert (absent.state, len(absent.details)) == ("fail", 1)
    assert "no plugin 'acmee' is installed; did you mean 'acme'?" in absent.details[0]
    unused = check("settings", "acme-rules", pins={"aten.mm.default": "acme"})
    assert (unused.state, len(unused.details)) == ("fail", 1)
    assert "contributes no rule for aten.mm.default" in unused.details[0]


def test_a_rule_for_an_op_that_torch_does_not_have_warns(plugin: Any) -> None:
    plugin("acme-rules", "aten.expp.default")
    found = check("rules", "acme-rules")
    assert found.state == "warn"
    assert "did you mean 'aten.exp.default'?" in found.details[0]


def test_a_rule_that_cannot_be_put_in_force_fails(plugin: Any) -> None:
    plugin("acme-rules", rule="like('aten.no_such_op.default')")
    found = check("rules", "acme-rules", required=("acme-rules",))
    assert found.state == "fail"
    assert "but that op does not exist" in found.details[0]


def test_rules_overwritten_behind_our_back_fail_with_who_wrote_them(plugin: Any) -> None:
    plugin("acme-rules")
    cell = ("op_single_dim_strategy_funcs", EXP)
    with dr.install(only("acme-rules")):
        held = read(cell)
        assert dr.doctor()["tables"].told == "as the host wrote them for 1 ops"
        try:
            store(cell, other_rule)
            written = dr.doctor()["tables"]
            store(cell, ABSENT)
            emptied = dr.doctor()["tables"]
        finally:
            store(cell, held)
    assert (written.state, emptied.state) == ("fail", "fail")
    assert written.told == "1 of the host's entries were overwritten by other code"
    where = "aten.exp.default in op_single_dim_strategy_funcs"
    name = f"{other_rule.__module__}.other_rule"
    assert written.details == (f"{where}: {name} ({line_of(other_rule)})",)
    assert emptied.details == (f"{where}: taken out",)


def test_rules_that_torch_was_given_by_hand_warn_under_a_loan_too(plugin: Any) -> None:
    plugin("acme-rules", "aten.renorm.default")

    def sharding(op_schema: Any) -> Any:
        raise NotImplementedError

    # torch's `register_sharding` would make it the program's own, which is obeyed.
    propagator().op_strategy_funcs[RENORM] = sharding
    try:
        before = dr.doctor(only("acme-rules"))["other code"]
        with dr.install(only("acme-rules")):
            during = dr.doctor()["other code"]
    finally:
        del propagator().op_strategy_funcs[RENORM]
    assert before == during
    assert before.state == "warn"
    [told] = before.details
    assert told.startswith("aten.renorm.default in op_strategy_funcs: ")
    assert told.endswith(f"sharding ({line_of(sharding)})")


class Strategy:
    def __call__(self, op_schema: Any) -> Any:
        raise NotImplementedError

    def method(self, op_schema: Any) -> Any:
        raise NotImplementedError


def enclosing(function: Any) -> Any:
    def inner(op_schema: Any) -> Any:
        return function(op_schema)

    return inner


@pytest.mark.parametrize(
    ("value", "author"),
    [
        (Strategy().method, Strategy.method),
        (partial(other_rule, 1), other_rule),
        (partial(torch.distributed.tensor.distribute_tensor, other_rule), other_rule),
        (enclosing(other_rule), enclosing(None)),
    ],
)
def test_wrappers_are_followed_to_who_wrote_them(value: Any, author: Any) -> None:
    assert author_of(value).endswith(f"({line_of(author)})")


def test_what_is_no_function_is_told_by_its_class() -> None:
    assert author_of(Strategy()) == f"a {Strategy.__module__}.Strategy"


def test_a_compile_cache_that_does_not_tell_rules_apart_fails(plugin: Any) -> None:
    plugin("acme-rules")
    with dr.install(only("acme-rules")):
        assert dr.doctor()["compile cache"].state == "ok"
        try:
            compile_caches.mark(None)
            lost = dr.doctor()["compile cache"]
        finally:
            compile_caches.mark(LOAN._digest())
    assert lost.state == "fail"
    assert lost.details == ("it does not hold the rules in force",)


def test_a_lock_file_that_differs_fails(plugin: Any, capsys: Any) -> None:
    plugin("acme-rules")
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules"]')
        assert main(["lock", "rules.lock"]) == 0
    same = check("lock", "acme-rules", lock="rules.lock")
    assert (same.state, same.told) == ("ok", "rules.lock: no difference")
    other = check("lock", lock="rules.lock")
    assert (other.state, other.next_step) == ("fail", "dtensor-registry diff rules.lock")
    assert other.told == "rules.lock: what is installed differs"


@pytest.mark.parametrize("text", [None, "# dtensor-registry lock, format 1\ntorch = 2.13.0\n"])
def test_a_lock_file_that_cannot_be_used_is_not_said_to_differ(text: str | None) -> None:
    if text is not None:
        Path("rules.lock").write_text(text)
    found = check("lock", lock="rules.lock")
    assert (found.state, found.told) == ("fail", "rules.lock: cannot be used")
    assert found.next_step == "dtensor-registry lock rules.lock"


def test_in_force_is_told_with_its_fingerprint(plugin: Any) -> None:
    plugin("acme-rules")
    with dr.install(only("acme-rules")) as installation:
        checkup = dr.doctor()
    assert checkup["in force"].told == "an installation, 1 ops"
    assert checkup["fingerprint"].told == installation.fingerprint
    assert dr.doctor(only("acme-rules"))["fingerprint"].told == installation.fingerprint


@pytest.mark.parametrize("tested", [("2.0.0", "2.1.0"), ("99.0", "99.1")])
def test_a_torch_outside_of_the_tested_range_warns(
    tested: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_checks, "TESTED", tested)
    found = process_checks.check_torch()
    assert found.state == "warn"
    assert found.next_step == f"pip install 'torch>={tested[0]},<={tested[1]}'"


def test_a_torch_without_a_private_name_fails_and_the_rest_is_told_without_it(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin("acme-rules")

    def lacking(module: str) -> Any:
        raise UnsupportedTorchError("2.99", ["torch.x is missing"])

    monkeypatch.setattr(examination, "import_module", lacking)
    checkup = dr.doctor(only("acme-rules"))
    assert [(c.about, c.state) for c in checkup.checks] == [
        ("torch", "fail"),
        ("private names", "fail"),
        ("settings", "ok"),
        ("plugins", "ok"),
        ("metadata", "ok"),
        ("autoload", "ok"),
    ]
    assert checkup["private names"].details == ("torch.x is missing",)


def test_a_torch_that_cannot_be_imported_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(module: str) -> Any:
        raise ImportError("libtorch.so: no such file")

    monkeypatch.setattr(examination, "import_module", lacking)
    found = dr.doctor(only())["torch"]
    assert (found.state, found.details) == ("fail", ("libtorch.so: no such file",))


def test_a_checkup_prints_itself_and_shows_ten_details_of_many() -> None:
    many = judge("tables", "12 were overwritten", map(str, range(12)), ["more"], "a\nb")
    shown = str(Checkup((Check("torch", "ok", "2.13.0"), many)))
    assert shown.splitlines() == [
        "ok    torch          2.13.0",
        "fail  tables         12 were overwritten",
        *(f"        {number}" for number in range(10)),
        "        ... 3 more",
        "        next:  a",
        "        b",
    ]
