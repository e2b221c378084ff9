"""`dtensor-registry ops`: who wins each op, why, and who is shadowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

ACME = """
    from dtensor_registry import FallbackStrategy, SingleDimStrategy, einsum, hookimpl

    def later_rows(op, args, kwargs):
        return []

    @hookimpl
    def provide_single_dim_strategy():
        return [
            SingleDimStrategy("aten.mm.default", einsum("mk,kn->mn")),
            SingleDimStrategy("aten.nonzero.default", later_rows),
            SingleDimStrategy("cli_test.later.default", later_rows),
        ]

    @hookimpl
    def provide_fallback():
        return [FallbackStrategy("gather-all", later_rows)]
"""

OTHER = """
    from dtensor_registry import SingleDimStrategy, einsum, hookimpl

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("aten.mm", einsum("ab,bc->ac"))]
"""

ACME_FIRST = {
    "DTENSOR_REGISTRY_ORDER": '["acme", "*", "torch"]',
    "DTENSOR_REGISTRY_DISABLED": '["acme:aten.nonzero*"]',
}

CONFLICT = dedent(
    """\
    aten.mm.default has 2 providers of equal rank.
      acme-rules 2.3.0 (entry point 'acme', acme_rules.py:10)
      other-rules 0.4.1 (entry point 'other', other_rules.py:6)
    Put one first:  DTENSOR_REGISTRY_ORDER='["acme", "*", "corrections", "torch", "pointwise", "matrix", "structure"]'
    or pin the op:  DTENSOR_REGISTRY_PINS='{"aten.mm.default": "acme"}'
    See what each offers:  dtensor-registry ops aten.mm.default"""  # noqa: E501 (as printed)
)

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def two(site: Any) -> None:
    """Plugins acme and other, which both have a rule for aten.mm.default."""
    site.install("acme-rules", "2.3.0", {"acme": "acme_rules"}, acme_rules=ACME)
    site.install("other-rules", "0.4.1", {"other": "other_rules"}, other_rules=OTHER)


def winners(shown: Any) -> dict[str, str | None]:
    """Who wins each op that `--json` lists."""
    return {
        row["op"]: row["winner"] and row["winner"]["plugin"] for row in json.loads(shown.out)["ops"]
    }


def provider(plugin: str, distribution: str, version: str, source: str, rule: str) -> Any:
    return {
        "plugin": plugin,
        "distribution": distribution,
        "version": version,
        "source": source,
        "rule": rule,
    }


def test_table_shows_winner_rule_reason_and_the_shadowed(call: Call) -> None:
    shown = call("ops", settings=ACME_FIRST)
    assert shown.out == dedent(
        """\
        op                                 winner                                        rule                why                          shadowed
        ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
        aten.mm.default                    acme (acme-rules 2.3.0, acme_rules.py:10)     einsum(mk,kn->mn)   step 0 of 'order' ('acme')   other (other-rules 0.4.1, other_rules.py:6) einsum(ab,bc->ac): acme comes first: step 0 of 'order' ('acme'); torch (op_single_dim_strategy_funcs)
        aten.mm.dtype                      other (other-rules 0.4.1, other_rules.py:6)   einsum(ab,bc->ac)   step 1 of 'order' ('*')
        aten.mm.dtype_out                  other (other-rules 0.4.1, other_rules.py:6)   einsum(ab,bc->ac)   step 1 of 'order' ('*')
        aten.mm.out                        other (other-rules 0.4.1, other_rules.py:6)   einsum(ab,bc->ac)   step 1 of 'order' ('*')      torch (op_single_dim_strategy_funcs)
        aten.nonzero.default               nobody                                                            no contribution is left      acme (acme-rules 2.3.0, acme_rules.py:4) later_rows: switched off for this op in 'disabled'
        cli_test.later.default (pending)   acme (acme-rules 2.3.0, acme_rules.py:4)      later_rows          step 0 of 'order' ('acme')

        fallbacks, in this order (mode 'off'):
          gather-all: acme (acme-rules 2.3.0, acme_rules.py:4)
        """  # noqa: E501
    )
    assert (shown.code, shown.err) == (0, "")


def test_json_shows_the_same(call: Call) -> None:
    shown = call("ops", "--json", settings=ACME_FIRST)
    report = json.loads(shown.out)
    rows = {row.pop("op"): row for row in report.pop("ops")}
    acme, other = ("acme", "acme-rules", "2.3.0"), ("other", "other-rules", "0.4.1")
    assert rows["aten.mm.default"] == {
        "winner": provider(*acme, "acme_rules.py:10", "einsum(mk,kn->mn)"),
        "reason": "step 0 of 'order' ('acme')",
        "pending": False,
        "torch_table": "op_single_dim_strategy_funcs",
        "shadowed": [
            provider(*other, "other_rules.py:6", "einsum(ab,bc->ac)")
            | {"reason": "acme comes first: step 0 of 'order' ('acme')"}
        ],
    }
    assert rows["aten.nonzero.default"] == {
        "winner": None,
        "reason": "no contribution is left",
        "pending": False,
        "torch_table": None,
        "shadowed": [
            provider(*acme, "acme_rules.py:4", "later_rows")
            | {"reason": "switched off for this op in 'disabled'"}
        ],
    }
    assert rows["cli_test.later.default"] == {
        "winner": provider(*acme, "acme_rules.py:4", "later_rows"),
        "reason": "step 0 of 'order' ('acme')",
        "pending": True,
        "torch_table": None,
        "shadowed": [],
    }
    assert report == {
        "fallbacks": [
            provider(*acme, "acme_rules.py:4", "later_rows") | {"name": "gather-all"},
        ],
        "fallback_mode": "off",
        "conflict": None,
    }
    assert (shown.code, shown.err) == (0, "")


def test_op_that_torch_keeps_is_torchs(call: Call) -> None:
    settings = ACME_FIRST | {"DTENSOR_REGISTRY_PINS": '{"aten.mm.default": "torch"}'}
    shown = call("ops", "aten.mm.default", settings=settings)
    row = " ".join(shown.out.splitlines()[2].split())
    assert row.startswith("aten.mm.default torch (op_single_dim_strategy_funcs) pinned acme (")
    assert "torch comes first: pinned" in row


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        pytest.param("aten.mm.default", ["aten.mm.default"], id="an overload"),
        pytest.param("aten::mm.out", ["aten.mm.out"], id="as torch's schemas write it"),
        pytest.param("aten.*.default", ["aten.mm.default", "aten.nonzero.default"], id="a glob"),
        pytest.param(
            "aten.m[m]",
            ["aten.mm.default", "aten.mm.dtype", "aten.mm.dtype_out", "aten.mm.out"],
            id="a glob of packets",
        ),
    ],
)
def test_glob_chooses_ops(call: Call, glob: str, expected: list[str]) -> None:
    shown = call("ops", "--json", glob, settings=ACME_FIRST)
    assert (shown.code, list(winners(shown))) == (0, expected)


@pytest.mark.parametrize(
    ("glob", "hint"),
    [
        ("aten.mmm", "did you mean 'aten.mm'?"),
        ("aten.nonzer.default", "did you mean 'aten.nonzero.default'?"),
        ("*zzzzz*", "none is close to it"),
    ],
)
def test_glob_without_a_match_is_a_problem_and_gets_a_hint(
    call: Call, glob: str, hint: str
) -> None:
    shown = call("ops", glob, settings=ACME_FIRST)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == (
        f"error: no plugin has a rule for an op that matches {glob!r}; {hint}\n"
        "  List all that plugins have rules for:  dtensor-registry ops\n"
    )


def test_json_without_a_match_is_still_json(call: Call) -> None:
    shown = call("ops", "--json", "*zzzzz*", settings=ACME_FIRST)
    assert (shown.code, json.loads(shown.out)["ops"]) == (1, [])


def test_no_rule_at_all_is_fine(call: Call) -> None:
    shown = call("ops", settings={"DTENSOR_REGISTRY_ALLOWED": "[]"})
    assert shown == type(shown)(0, "no plugin has a rule for any op\n", "")


def test_conflict_is_a_problem_and_both_rules_are_shown(call: Call) -> None:
    shown = call("ops", "aten.mm.default")
    assert (shown.code, shown.err) == (1, f"error: {CONFLICT}\n")
    heading, _, table = shown.out.partition("\n\n")
    assert heading == "There is a conflict; what follows is as on_conflict = 'skip' has it."
    assert "acme (acme-rules 2.3.0, acme_rules.py:10) einsum(mk,kn->mn): in conflict" in table
    assert "other (other-rules 0.4.1, other_rules.py:6) einsum(ab,bc->ac): in conflict" in table


def test_json_carries_the_conflict(call: Call) -> None:
    shown = call("ops", "--json", "aten.mm.default")
    assert (shown.code, shown.err) == (1, f"error: {CONFLICT}\n")
    assert json.loads(shown.out)["conflict"] == CONFLICT
    assert winners(shown) == {"aten.mm.default": None}


def test_conflict_elsewhere_is_a_problem_too_since_nothing_would_be_installed(call: Call) -> None:
    shown = call("ops", "--json", "cli_test.*")
    assert (shown.code, winners(shown)) == (1, {"cli_test.later.default": "acme"})


def test_conflict_that_the_settings_allow_is_fine(call: Call) -> None:
    shown = call("ops", "--json", settings={"DTENSOR_REGISTRY_ON_CONFLICT": "skip"})
    assert (shown.code, shown.err, json.loads(shown.out)["conflict"]) == (0, "", None)
    assert winners(shown)["aten.mm.default"] is None


def test_broken_plugin_is_an_error_unless_the_settings_allow_it(site: Any, call: Call) -> None:
    site.install("broken", "1", {"broken": "broken_rules"}, broken_rules="raise ImportError('x')")
    failure = (
        "plugin 'broken' of broken 1 (entry point 'broken', broken_rules) cannot be used:"
        " importing it raised ImportError: x\n"
        "  Switch it off:  DTENSOR_REGISTRY_DISABLED='[\"broken\"]'\n"
    )
    strict = call("ops", settings=ACME_FIRST)
    assert (strict.code, strict.out) == (1, "")
    assert strict.err.startswith("error: 1 plugin(s) cannot be used")
    assert failure in strict.err
    lenient = call(
        "ops", "aten.mm", settings=ACME_FIRST | {"DTENSOR_REGISTRY_ON_PLUGIN_ERROR": "skip"}
    )
    assert (lenient.code, lenient.err) == (0, f"warning: {failure}")
    assert "aten.mm.out" in lenient.out


def test_fresh_interpreter_agrees(site: Any, call: Call) -> None:
    assert site.run("ops", settings=ACME_FIRST) == call("ops", settings=ACME_FIRST)
