"""The whole output of the command, plain and JSON, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from dtensor_registry.explanation import ExplanationReport
from dtensor_registry.torch_runtime.dispatcher import propagator

ADD = """
    from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("aten.add.Tensor", pointwise())]
"""
SCHEMA = Path(__file__).parents[2] / "docs" / "explanation.schema.json"
MM = ("aten.mm", "f32[8,6]@S(0)", "f32[6,2]@S(0)", "--mesh", "tp=4")


def expected(name: str) -> str:
    return (Path(__file__).parent / "expected" / f"{name}.txt").read_text("utf-8")


def shown(text: str) -> str:
    """Leave out which torch it is, and where in it a rule is."""
    return re.sub(r"torch \(torch [^)]*\)", "torch (TORCH)", text)


def test_plain(run: Any) -> None:
    questions = (
        "--why-not",
        "R; S(1) -> S(1)",
        "--why-not",
        "S(1);S(0)",
        "--why-not",
        "(R) <- (S(1)), (S(0))",
    )
    outcome = run(*MM, *questions)
    assert shown(outcome.out) == expected("choice")
    assert (outcome.code, outcome.err) == (0, "")


def test_json_is_what_the_published_schema_says(run: Any) -> None:
    published = json.loads(SCHEMA.read_text("utf-8"))
    assert published == ExplanationReport.model_json_schema(mode="serialization"), (
        "python -m tests.explain.write_schema"
    )
    outcome = run(*MM, "--json")
    report = ExplanationReport.model_validate_json(outcome.out, strict=True)
    assert shown(str(report.root)) == shown(run(*MM).out.rstrip("\n"))
    known = set(published["$defs"]["Explanation"]["properties"])
    assert set(json.loads(outcome.out)) == known
    assert (outcome.code, outcome.err) == (0, "")


def test_op_alone_says_who_has_rules(run: Any) -> None:
    outcome = run("aten.mm")
    assert outcome.code == 0
    assert shown(outcome.out) == expected("op_alone")


def test_call_that_raises_exits_with_1_and_says_what_it_raises(run: Any) -> None:
    outcome = run("aten.nonzero", "f32[8]@S(0)", "--mesh", "2")
    assert outcome.code == 1
    assert outcome.out == expected("raises")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["aten.mn"], "there is no op aten.mn\n  Did you mean aten.min"),
        (["aten.add", "f32[2]", "--mesh", "2"], "aten.add has 4 overloads; which one is meant?"),
        (["aten.mm", "f32[2,2]", "f32[2,2]"], "aten.mm.default: on which mesh?"),
        (["aten.mm", "f32[2,2]", "f32[3,2]", "--mesh", "2"], "does not take these arguments"),
        (["aten.relu", "f33[2]", "--mesh", "2"], "there is no dtype f33"),
        (["aten.relu", "f32[2]@R", "--mesh", "2x2"], "has 1 placements, mesh (2, 2) has 2 dims"),
        (["aten.relu", "f32[2]@S(1)", "--mesh", "2"], "cuts a dim that shape (2,) has not"),
        (["aten.relu", "f32[2]@R", "--mesh", "2by2"], "a mesh is written  2x4  or  dp=2,tp=4"),
        (["aten.relu", "f32[2]", "--mesh", "100000x100000"], "1,048,576 ranks at most"),
        (["prim::device", "f32[2]", "--mesh", "2"], "is never dispatched"),
        (["aten.mm", "--why-not", "R;R -> R"], "a choice is asked about, but for which call?"),
        (["aten.mm", "f32[2,2]", "mat3=f32[2,2]", "--mesh", "2"], "missing value for argument"),
        (["aten.mm", "self=f32[2,2]", "--mesh", "2"], "missing value for argument 'mat2'"),
        (["aten.relu", "f32[2", "--mesh", "2"], "neither a tensor nor a literal"),
        (["aten.relu", "f32[2]@R", "--mesh", "2", "--why-not", "R; R"], "has 1 tensor inputs"),
        (["aten.relu", "f32[2]@R", "--mesh", "2", "--import", "no_such_one"], "--import no_such"),
        (["aten.relu", "f32[2]", "--mesh", "2", "--html", "no/such.html"], "cannot be written"),
    ],
)
def test_what_makes_no_call_exits_with_2(run: Any, arguments: list[str], told: str) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert told in outcome.err


@pytest.mark.parametrize(
    ("op", "by_name", "by_position"),
    [
        ("aten.cumsum", ["dim=-1"], ["-1"]),
        ("aten._softmax", ["half_to_float=False", "dim=-1"], ["-1", "False"]),
        ("aten.view", ["size=[64]"], ["[64]"]),
        ("aten.gather", ["index=i64[8,8]", "dim=0"], ["0", "i64[8,8]"]),
        ("aten.clamp", ["max=1"], ["None", "1"]),
        ("aten.index_put", ["indices=[i64[8]]", "values=f32[]"], ["[i64[8]]", "f32[]"]),
    ],
)
def test_arguments_by_name_are_as_those_by_position(
    run: Any, op: str, by_name: list[str], by_position: list[str]
) -> None:
    first, on = "f32[8,8]@S(0)", ("--mesh", "2")
    positioned = run(op, first, *by_position, *on)
    assert (positioned.code, positioned.err) == (0, "")
    assert run(op, first, *by_name, *on) == positioned
    assert run(op, *by_name, f"self={first}", *on) == positioned


def test_what_a_rule_of_torchs_raises_is_what_the_call_raises(
    run: Any,
) -> None:
    def failing(schema: Any) -> Any:
        raise IndexError("tuple index out of range")

    op = torch.ops.aten.unsqueeze.default
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(propagator().op_strategy_funcs, op, failing)
        outcome = run("aten.unsqueeze", "f32[8]@S(0)", "0", "--mesh", "2")
    assert (outcome.code, outcome.err) == (1, "")
    assert "the call raises:\n" in outcome.out
    assert "tuple index out of range" in outcome.out


def test_a_module_that_fails_at_import_is_named_and_not_a_traceback(
    run: Any, fake_distribution: Any
) -> None:
    module = fake_distribution("broken-library", "raise ValueError('no such device')")
    outcome = run("aten.mm", "--import", module)
    assert outcome.code == 2
    assert f"--import {module}: ValueError: no such device" in outcome.err


def test_a_conflict_over_another_op_is_a_note(
    run: Any, fake_distribution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first-rules", "other-rules"):
        fake_distribution(name, ADD)
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules", "first-rules", "other-rules"]')
    told = (
        "  note: install() fails, since first and other are in conflict over aten.add.Tensor;"
        " this is as on_conflict = 'skip' has it\n"
    )
    for words in (("aten.mm",), MM):
        outcome = run(*words)
        assert (outcome.code, outcome.err) == (0, "")
        assert told in outcome.out
        assert "  * acme (acme-rules 2.3.0" in outcome.out
    own = run("aten.add.Tensor")
    assert own.code == 1
    assert own.err.startswith("error: aten.add.Tensor has 2 providers of equal rank.")


def test_all_lists_every_combination(run: Any) -> None:
    call = ("aten.mm", "f32[8,8]@S(0),R", "f32[8,8]@R,R", "--mesh", "2x2")
    some, every = (json.loads(run(*call, "--json", *more).out) for more in ([], ["--all"]))
    assert (len(some["candidates"]), some["valid"]) == (10, 16)
    assert (len(every["candidates"]), every["valid"]) == (16, 16)
    assert every["candidates"][:10] == some["candidates"]


def test_a_page_that_cannot_be_written_is_told_before_the_work(run: Any, tmp_path: Path) -> None:
    page = tmp_path / "no" / "page.html"
    outcome = run(*MM, "--html", str(page))
    assert (outcome.code, outcome.out) == (2, "")
    assert f"mkdir -p {page.parent}" in outcome.err
