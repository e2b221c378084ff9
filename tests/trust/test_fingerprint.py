"""The fingerprint says what decides a sharding: no less, and nothing that differs by chance."""

from __future__ import annotations

import functools
import logging
import os
import runpy
import subprocess
import sys
from typing import Any

import pytest

import dtensor_registry as dr
from dtensor_registry.fingerprint import Fingerprint, digest_of, of_rules, traits

PLUGIN = """\
from dtensor_registry import FallbackStrategy, SingleDimStrategy, hookimpl

def rows(op, args, kwargs):
    return {rows}

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("aten.neg.default", rows{flags})]

@hookimpl
def provide_fallback():
    return [FallbackStrategy("gather", lambda op, args, kwargs: [])]
"""


@pytest.fixture
def decided(fake_distribution: Any) -> Any:
    """Install a plugin of some kind for a moment, and tell what was decided by."""

    def decide(
        rows: str = "[]", flags: str = "", version: str = "1.0", more: str = "", **settings: Any
    ) -> Fingerprint:
        source = PLUGIN.format(rows=rows, flags=flags) + more
        fake_distribution("acme-rules", source, version=version, first=True)
        with dr.install(allowed=["acme-rules"], **settings) as installation:
            return installation.decides_by

    return decide


def differing(one: Fingerprint, other: Fingerprint) -> list[str]:
    ours, theirs = dict(one.parts), dict(other.parts)
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


def test_a_rule_whose_code_is_another_is_another_part(decided: Any) -> None:
    assert "op aten.neg.default" in differing(decided(), decided(rows="[[]]"))


def test_a_flag_of_a_strategy_is_part_of_its_op(decided: Any) -> None:
    other = decided(flags=", allow_uneven_sharding=True")
    assert "op aten.neg.default" in differing(decided(), other)


def test_a_change_elsewhere_in_the_file_of_a_rule_is_seen(decided: Any) -> None:
    assert "op aten.neg.default" in differing(decided(), decided(more="HELPER = 1\n"))


def test_the_version_of_a_plugin_is_a_part(decided: Any) -> None:
    assert "plugin acme" in differing(decided(), decided(version="1.1"))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("disabled", {"disabled": ["acme:aten.abs.*"]}),
        ("fallback", {"fallback": {"mode": "warn"}}),
        ("may_override", {"may_override": ["acme"]}),
        ("on_conflict", {"on_conflict": "skip"}),
        ("on_plugin_error", {"on_plugin_error": "skip"}),
        ("order", {"order": ["*", "torch"]}),
        ("pins", {"pins": {"aten.neg.default": "acme"}}),
        ("torch_rules", {"torch_rules": False}),
    ],
)
def test_a_setting_that_decides_is_a_part(decided: Any, name: str, settings: Any) -> None:
    # The file is another each time, and so is the module's name.
    assert f"setting {name}" in differing(decided(), decided(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"required": ["acme-rules"]},
        {"check_ranks": True},
        {"fallback": {"mode": "silent"}},
    ],
)
def test_a_setting_that_decides_nothing_is_none(decided: Any, settings: Any) -> None:
    bare: dict[str, Any] = {"fallback": {"mode": "warn"}} if "fallback" in settings else {}
    parts = differing(decided(**bare), decided(**settings))
    assert [name for name in parts if name.startswith("setting")] == []


def test_a_fallback_is_a_part(decided: Any) -> None:
    assert "acme-rules 1.0 (acme), rule " in decided()["fallback gather"]


PROGRAM = """\
import dtensor_registry as dr
from dtensor_registry.fingerprint import digest_of

def rows(op, args, kwargs, names={"b", "a", "c"}):
    return [x for x in (1, 2) if x in {3, 4, 5} or x in names]

print(digest_of(rows), digest_of(dr.pointwise(linear=[(0, 1)])), digest_of(dr.einsum("mk,kn->mn")))
"""


def test_hashes_of_rules_are_the_same_in_every_process_and_at_every_path(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here.py", tmp_path / "there.py"
    for program in (here, there):
        program.write_text(PROGRAM)
    runpy.run_path(str(here))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(there)],
        env={
            **os.environ,
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == capsys.readouterr().out


def closing_over(value: Any) -> Any:
    return lambda op, args, kwargs: [value]


class Ruler:
    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __call__(self, op: Any, args: Any, kwargs: Any) -> Any:
        return [self.dim]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (closing_over(1), closing_over(2)),
        (closing_over(closing_over(1)), closing_over(closing_over(2))),
        (functools.partial(closing_over, 1), functools.partial(closing_over, 2)),
        (Ruler(1), Ruler(2)),
        (dr.pointwise(), dr.pointwise(linear=[(0,)])),
        (dr.einsum("mk,kn->mn"), dr.einsum("mk,kn->nm")),
        (lambda op, args, kwargs: {1, 2}, lambda op, args, kwargs: {1, 3}),
        (lambda op, args, kwargs, x=1: x, lambda op, args, kwargs, x=2: x),
    ],
    ids=["closure", "nested", "partial", "object", "template", "einsum", "constants", "defaults"],
)
def test_rules_that_differ_have_different_hashes(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)


def test_rules_that_are_made_alike_have_one_hash() -> None:
    assert digest_of(closing_over((1, {"a": 2}))) == digest_of(closing_over((1, {"a": 2})))
    assert digest_of(Ruler(1)) == digest_of(Ruler(1))


def test_a_rule_that_closes_over_itself_can_be_hashed() -> None:
    def rows(op: Any, args: Any, kwargs: Any) -> Any:
        return rows(op, args, kwargs)

    assert len(digest_of(rows)) == 12


def test_every_field_of_a_strategy_that_decides_is_taken() -> None:
    _, others = traits(dr.SingleDimStrategy("aten.neg.default", dr.pointwise()))
    assert {"schema_info", "allow_uneven_sharding", "variants"} <= {name for name, _ in others}


def test_what_it_is_made_of_can_be_read(decided: Any) -> None:
    shown = str(decided())
    assert shown.startswith("torch: 2.")
    assert "\nplugin acme: acme-rules 1.0 (fake_acme_rules" in shown


TABLE = {"a": 1}
LOG = logging.getLogger("rules")


def helper() -> Any:
    return TABLE["a"]


def reads_a_table(op: Any, args: Any, kwargs: Any) -> Any:
    return [helper()]


def reads_a_logger(op: Any, args: Any, kwargs: Any) -> Any:
    LOG.debug("asked")
    return []


def test_what_a_local_rule_reads_of_its_module_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of_rules({"aten.relu.default": reads_a_table}, "this process")
    monkeypatch.setitem(TABLE, "a", 2)
    assert of_rules({"aten.relu.default": reads_a_table}, "this process") != before


def test_what_a_local_rule_reads_and_nobody_can_compare_is_named() -> None:
    parts = of_rules({"aten.relu.default": reads_a_logger}, "this process")
    assert parts["op aten.relu.default"].endswith("not compared: LOG")
    assert "file " in parts["op aten.relu.default"]
