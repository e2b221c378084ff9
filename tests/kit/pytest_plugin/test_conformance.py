"""`StrategyConformance`: five lines, a test per op and check, and each fault fails its own test."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry_kit import StrategyConformance

CHECKS = [name for name in vars(StrategyConformance) if name.startswith("test_")]

FIVE_LINES = """
    from dtensor_registry_kit import StrategyConformance


    class TestConformance(StrategyConformance):
        distribution = "{distribution}"
"""

# A vendor's distribution, made before the test file is collected.
VENDOR = """
    import sys, pathlib, textwrap
    folder = pathlib.Path(__file__).with_name("site")
    info = folder / "faulty_rules-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: faulty-rules\\nVersion: 1.0\\n")
    (info / "entry_points.txt").write_text("[dtensor_registry]\\nfaulty = faulty_rules\\n")
    (folder / "faulty_rules.py").write_text(textwrap.dedent('''{rules}'''))
    sys.path.append(str(folder))

    from dtensor_registry_kit import StrategyConformance

    class TestConformance(StrategyConformance):
        distribution = "faulty-rules"
        isolated = {isolated}
"""

RULES = """
    import ctypes
    import torch
    from dtensor_registry import *

    S, R, P = ShardingPlaceholder, REPLICATE, Partial

    {op}

    def samples():
        x = torch.rand(4, 6) - 0.4
        return [((x, {arguments}), {{}})]

    {rule}

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("{name}", rule, samples=samples{options})]
"""

OP = """
    @torch.library.custom_op("faulty::twice", mutates_args=())
    def twice(x: torch.Tensor, flag: bool = False) -> torch.Tensor:
        {body}

    twice.register_fake(lambda x, flag=False: torch.empty_like(x))
"""


def vendor(
    rule: str, *, body: str = "return x * 2", options: str = "", isolated: bool = False
) -> str:
    """A test file of a vendor with one op `faulty::twice`, and what is wrong with its rule."""
    import textwrap

    op = textwrap.dedent(OP).format(body=body)
    rules = textwrap.dedent(RULES).format(
        op="OP", rule="RULE", name="faulty.twice.default", arguments="False", options=options
    )
    rules = rules.replace("OP", op, 1).replace("RULE", textwrap.dedent(rule), 1)
    return textwrap.dedent(VENDOR).format(rules=rules, isolated=isolated)


def test_five_lines_make_a_test_per_op_and_check(run_tests: Any) -> None:
    run = run_tests(FIVE_LINES.format(distribution="acme-kernels"))
    assert run.code == 0, run.out
    assert run.counts == {"passed": 4 * len(CHECKS)}


def test_a_distribution_without_rules_is_an_error_not_an_empty_run(run_tests: Any) -> None:
    run = run_tests(FIVE_LINES.format(distribution="no-such-thing"))
    assert run.code != 0
    assert "distribution 'no-such-thing' contributes no rule" in run.out


@pytest.mark.parametrize("isolated", [True, False])
def test_a_wrong_row_fails_one_test_and_comes_with_a_program(
    run_tests: Any, isolated: bool
) -> None:
    rule = "def rule(op, args, kwargs): return [[S(1), S(0)]]"
    run = run_tests(vendor(rule, isolated=isolated))
    assert [name.split("[")[0] for name in run.failed] == [
        "test_every_row_gives_the_result_of_the_whole_run",
        "test_dtensor_gives_the_result_of_the_whole_run",
    ]
    assert "unsound: S(1) <- S(0)" in run.out
    assert "print(check_row(torch.ops.faulty.twice.default, (x0, False), {}" in run.out


@pytest.mark.parametrize(
    ("rule", "options", "body", "failing"),
    [
        (
            "def rule(op, args, kwargs): return [kwargs['no']]",
            "",
            "return x * 2",
            "test_the_rule_answers_every_call_with_rows",
        ),
        (
            "def rule(op, args, kwargs): return [[S(0), S(0)]] * 2",
            "",
            "return x * 2",
            "test_the_rule_shards_where_it_could_and_repeats_no_row",
        ),
        (
            "def rule(op, args, kwargs): return []",
            "",
            "return x * 2",
            "test_the_rule_shards_where_it_could_and_repeats_no_row",
        ),
        (
            "def rule(op, args, kwargs):"
            " return [[S(1), S(1)]] + ([] if args[1:] == (True,) else [[S(0), S(0)]])",
            ", schema_info=SchemaInfo(2)",
            "return x * 2",
            "test_the_cache_key_holds_what_the_rows_depend_on",
        ),
        (
            "asked = []\n"
            "def rule(op, args, kwargs):\n"
            "    asked.append(1)\n"
            "    return [[S(1), S(1)], [S(0), S(0)]][len(asked) % 2:]",
            "",
            "return x * 2",
            "test_the_rule_always_gives_the_same_rows_and_changes_nothing",
        ),
    ],
    ids=["raises", "repeats", "vacuous", "key", "changes"],
)
def test_each_fault_fails_the_test_that_is_about_it(
    run_tests: Any, rule: str, options: str, body: str, failing: str
) -> None:
    run = run_tests(vendor(rule, options=options, body=body))
    assert {name.split("[")[0] for name in run.failed} == {failing}, run.out


def test_a_kernel_that_crashes_is_a_finding_and_the_run_goes_on(run_tests: Any) -> None:
    body = "return x * 2 if x.shape[0] == 4 or x.shape[0] > 4 else ctypes.string_at(0)"
    rule = "def rule(op, args, kwargs): return [[S(0), S(0)]]"
    run = run_tests(vendor(rule, body=body, isolated=True))
    assert run.counts == {"passed": len(CHECKS) - 1, "failed": 1}
    assert "the process died (SIGSEGV) in the middle of: S(0) <- S(0) on 2 ranks: f32[4,6]" in (
        run.out
    )


def test_an_op_without_a_call_that_runs_is_not_taken_for_checked(run_tests: Any) -> None:
    rule = "def rule(op, args, kwargs): return [[S(0), S(0)]]"
    run = run_tests(vendor(rule, body="raise ValueError('never')"))
    assert [name.split("[")[0] for name in run.failed] == [
        "test_the_rule_answers_every_call_with_rows"
    ]
    assert "faulty.twice.default was not checked" in run.out


def test_samples_of_the_class_replace_those_of_the_strategy(run_tests: Any) -> None:
    rule = "def rule(op, args, kwargs): return [[S(0), S(0)]] if args[0].ndim < 3 else [[R, S(0)]]"
    rule = rule.replace("args[0].ndim", "len(args[0].shape)")
    source = vendor(rule) + (
        "    samples = {'faulty.twice.default':"
        " lambda: [((__import__('torch').ones(2, 3, 4), ), {})]}\n"
    )
    assert run_tests(vendor(rule)).code == 0
    run = run_tests(source)
    assert "test_every_row_gives_the_result_of_the_whole_run[faulty.twice.default]" in run.failed


def test_every_other_op_is_left_out_until_a_long_run_is_asked_for(
    run_tests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FIVE_LINES.format(distribution="acme-kernels") + "        every = 3\n"
    short = run_tests(source, "--collect-only")
    assert short.out.count("test_the_cache_key") == 2
    monkeypatch.setenv("DTENSOR_REGISTRY_LONG", "1")
    everything = run_tests(source, "--collect-only")
    assert everything.out.count("test_the_cache_key") == 4
