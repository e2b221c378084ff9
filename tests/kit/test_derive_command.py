"""`dtensor-registry derive`: the rule of an op from a reference in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dtensor_registry.cli import main

SOURCE = """
    import torch

    @torch.library.custom_op("derive_command::gate", mutates_args=())
    def gate(x: torch.Tensor, by: torch.Tensor, scale: float) -> torch.Tensor:
        return x * by * scale

    def reference(x, by, scale):
        return x * by * scale

    def calls():
        yield (torch.randn(4, 6), torch.randn(4, 6), 2.0), {}
"""
RULE = """\
# derive_command.gate.default, derived through aten.mul.Tensor
frozen(
    case([
        row(out="P(sum)", by="P(sum)"),
        row(out="S(0)", by="S(0)", x="S(0)"),
        row(out="S(1)", by="S(1)", x="S(1)"),
        row(out="P(sum)", x="P(sum)"),
    ], by=2, x=2),
)
"""
Derive = Callable[..., tuple[int, str, str]]


@pytest.fixture
def derive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Derive:
    """Run the command on `reference.py` in the working directory."""
    (tmp_path / "reference.py").write_text(dedent(SOURCE), "utf-8")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["derive", *arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


GATE = ("derive_command.gate", "reference.py:reference", "--samples", "reference.py:calls")


def test_it_prints_the_rule_to_paste(derive: Derive) -> None:
    code, out, err = derive(*GATE, "--ignore", "scale")
    assert (code, err) == (0, "")
    assert out == RULE


def test_json_has_the_rule_and_what_was_passed_through(derive: Derive) -> None:
    code, out, _ = derive(*GATE, "--ignore", "scale", "--json")
    report: dict[str, Any] = json.loads(out)
    assert code == 0
    assert report["op"] == "derive_command.gate.default"
    assert (report["passed"], report["rows"], report["refuted"]) == (["aten.mul.Tensor"], 4, [])
    assert report["rule"] == RULE.partition("\n")[2].rstrip()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("a.b", "reference.py"), 2, "'reference.py' is not written FILE:FUNCTION"),
        (("a.b", "other.py:reference"), 2, "other.py: there is no such file"),
        (("a.b", "reference.py:refrence"), 2, "has no function 'refrence'; did you mean"),
        (("a.b", "reference.py:reference"), 1, "a.b does not exist: import what defines"),
        ((*GATE, "--ignore", "eps"), 1, "ignore names 'eps', which"),
    ],
    ids=["no function", "no file", "another function", "no op", "no argument"],
)
def test_what_is_wrong_is_said(
    derive: Derive, capsys: Any, arguments: tuple[str, ...], code: int, told: str
) -> None:
    try:
        found, _, err = derive(*arguments)
    except SystemExit as ended:
        found, err = int(str(ended.code)), capsys.readouterr().err
    assert found == code
    assert told in err
