"""`dtensor-registry verify`: what it prints, where, and its exit code."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from dtensor_registry.cli import main
from dtensor_registry.settings import read_settings
from dtensor_registry_kit import Report
from dtensor_registry_kit.commands.verify import PROBLEMS, VerifyReport, _notes, _row, junit
from dtensor_registry_kit.samples.choose import samples_for
from dtensor_registry_kit.samples.opinfo import MissingOpInfoError
from dtensor_registry_kit.verification.targets import find_targets
from dtensor_registry_kit.verification.verify import Verified, verify

FAULTY = """
    import torch
    from dtensor_registry import Partial, SchemaInfo, ShardingPlaceholder as S, SingleDimStrategy
    from dtensor_registry import hookimpl, pointwise

    def samples():
        return [((torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]]),), {})]

    def cumulative():
        return [((torch.rand(4, 3), 0), {}), ((torch.rand(4, 3), 1), {})]

    def by_dim(op, args, kwargs):
        return [[S(1 - args[1]), S(1 - args[1])]]

    @hookimpl
    def provide_single_dim_strategy():
        return [
            SingleDimStrategy("aten.sin.default", pointwise(), samples=samples),
            SingleDimStrategy("aten.cos.default", pointwise(linear=[(0,)]), samples=samples),
            SingleDimStrategy("aten.cumsum.default", by_dim, schema_info=SchemaInfo(2),
                              samples=cumulative),
            SingleDimStrategy("no_such_library.op.default", pointwise()),
        ]
"""


@pytest.fixture
def faulty(fake_distribution: Any) -> None:
    """A plugin with a right rule, a wrong one, a stale one, and one for an op that is not there."""
    fake_distribution("faulty-rules", FAULTY)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command in this process; return exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["verify", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.usefixtures("faulty")
def test_a_wrong_rule_exits_with_1_and_prints_a_program_that_shows_it(command: Any) -> None:
    code, out, err = command("faulty", "--jobs", "2")
    assert code == 1
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("aten.")}
    assert rows["aten.sin.default"][1:3] == ["faulty", "trusted"]
    assert rows["aten.cos.default"][1:3] == ["faulty", "WRONG"]
    assert rows["aten.cumsum.default"][1:3] == ["faulty", "WRONG"]
    assert "aten.cos.default: the rule pointwise(linear=[(0,)]) of faulty-rules 1.0 (entry" in out
    assert "unsound: P(sum) <- P(sum)" in out
    assert "cache key: argument 1" in out
    assert re.search(
        r"^4 rules: 1 trusted, 2 WRONG, 1 not checked \(\d+ combinations\)$", out, re.M
    )
    assert "1 rules were not checked (no_such_library.op.default): the op does not exist" in err
    program = re.search(r"unsound: .*?To see it again:\n(.*?)\n  \w", out, re.S)
    assert program is not None
    lines = [line.strip() for line in program[1].splitlines()]
    assert len(lines) <= 6
    printed: list[Any] = []
    exec("\n".join(lines), {"print": printed.append})
    assert printed[0].outcome == "unsound"


@pytest.mark.usefixtures("faulty")
def test_right_rules_exit_with_0(command: Any) -> None:
    code, out, _ = command("faulty:aten.sin.*")
    assert code == 0
    assert "1 rules: 1 trusted" in out


@pytest.mark.usefixtures("faulty")
def test_json_and_junit_say_the_same(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    code, out, _ = command("faulty", "--json", "--junit", str(file), "--jobs", "2")
    assert code == 1
    told = {rule["op"]: rule for rule in json.loads(out)["rules"]}
    assert {op: rule["state"] for op, rule in told.items()} == {
        "aten.cos.default": "WRONG",
        "aten.cumsum.default": "WRONG",
        "aten.sin.default": "trusted",
        "no_such_library.op.default": "not checked",
    }
    sine = told["aten.sin.default"]
    assert (sine["plugin"], sine["samples"], sine["rule"]) == ("faulty", "author", "pointwise()")
    assert sorted(sine["sound"]) == ["S(0) <- S(0)", "S(1) <- S(1)"]
    suite = ElementTree.parse(file).getroot()[0]
    assert {name: suite.attrib[name] for name in ("name", "tests", "failures", "skipped")} == {
        "name": "faulty",
        "tests": "4",
        "failures": "2",
        "skipped": "1",
    }
    failures = {case.attrib["name"]: case.find("failure") for case in suite}
    assert failures["aten.sin.default"] is None
    assert failures["aten.cumsum.default"] is not None
    assert failures["aten.cumsum.default"].attrib["message"] == "cache key: argument 1"


@pytest.mark.usefixtures("faulty")
def test_no_op_is_begun_when_the_budget_is_spent(command: Any) -> None:
    code, out, err = command("faulty", "--budget", "1e-9")
    assert code == 1  # nothing was verified
    assert "4 rules: 4 not reached (0 combinations)" in out
    assert "4 rules were not reached (aten.cos.default, " in err


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("faulti", "'faulti' is neither a plugin nor a glob of ops; did you mean 'faulty'?"),
        ("aten.nonesuch*", "nobody has a rule for an op that matches 'aten.nonesuch*'"),
        ("nobody:aten.sin*", "'nobody' is neither a plugin nor a glob of ops"),
    ],
)
def test_what_names_nothing_is_a_usage_error(command: Any, pattern: str, said: str) -> None:
    code, out, err = command(pattern)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--samples", "0"], "'0' is not a whole number of 1 or more"),
        (["--samples", "few"], "'few' is not a whole number of 1 or more"),
        (["--jobs", "-1"], "'-1' is not a whole number of 1 or more"),
        (["--budget", "-1"], "'-1' is not a number of seconds above 0"),
        (["--budget", "0"], "'0' is not a number of seconds above 0"),
        (["--budget", "nan"], "'nan' is not a number of seconds above 0"),
        (["--budget", "soon"], "'soon' is not a number of seconds above 0"),
    ],
)
def test_a_wrong_number_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["verify", *arguments])
    told = capsys.readouterr().err
    assert "usage: dtensor-registry verify" in told
    assert f"argument {arguments[0]}: {said}\n" in told


def test_a_report_that_cannot_be_written_is_told_before_anything_is_verified(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(importlib.import_module(verify.__module__), "verify")
    code, out, err = command("--junit", "no/such/folder/f.xml")
    assert (code, out) == (2, "")
    assert err == (
        "error: --junit no/such/folder/f.xml: cannot be written: there is no folder"
        " no/such/folder\n  Make it first:  mkdir -p no/such/folder\n"
    )


def test_missing_samples_of_torch_are_told_once_with_what_to_install() -> None:
    note = str(MissingOpInfoError(ModuleNotFoundError("No module named 'expecttest'")))
    rows = [
        _row(Verified(op, "p", Report(op, "p 1", "f", (), (), 0, 0), "generated", note))
        for op in ("aten.a.default", "aten.b.default")
    ]
    told = "\n".join(_notes(VerifyReport(torch="2", rules=tuple(rows))))
    assert told.count("cannot be imported: No module named 'expecttest'") == 1
    assert told.count("pip install dtensor-registry-kit") == 1


def test_the_kit_requires_what_torchs_samples_need() -> None:
    requires = [Requirement(text).name for text in metadata.requires("dtensor-registry-kit") or ()]
    assert {"expecttest", "numpy", "pytest"} <= set(requires)


@pytest.mark.usefixtures("faulty")
def test_torchs_own_rules_are_verified_when_they_are_named(command: Any) -> None:
    code, out, _ = command("torch:aten.sin.default", "aten.sin", "--json", "--jobs", "2")
    assert code == 0
    owners = {rule["plugin"]: rule["owner"] for rule in json.loads(out)["rules"]}
    assert sorted(owners) == ["faulty", "pointwise", "torch"]
    assert owners["torch"].startswith("torch 2.")


@pytest.mark.usefixtures("faulty")
def test_a_terminal_gets_a_progress_bar_on_stderr() -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dtensor_registry.cli", "verify", "faulty:aten.sin.*"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "TERM": "xterm",
        },
        stdout=subprocess.PIPE,
        stderr=follower,
        encoding="utf-8",
    ) as run:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        out, _ = run.communicate(timeout=120)
    os.close(leader)
    assert run.returncode == 0
    assert "verifying" in shown.decode(errors="replace")
    assert "1 rules: 1 trusted" in out
    assert "verifying" not in out


def test_a_check_that_fails_itself_is_a_problem_not_a_pass() -> None:
    report = Report("aten.sin.default", "torch", "", (), (), 0, 0)
    row = _row(Verified("aten.sin.default", "torch", report, note="KeyError: 'x'", failed=True))
    assert row.state in PROBLEMS
    suite = ElementTree.fromstring(junit(VerifyReport(torch="2.13.0", rules=(row,))))[0]
    assert (suite.attrib["errors"], suite.attrib["failures"]) == ("1", "0")


def test_forms_that_a_rule_reaches_as_variants_are_verified_too(fake_distribution: Any) -> None:
    fake_distribution(
        "variant-rules",
        """
        import torch
        from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

        def samples():
            return [((torch.rand(4, 6),), {})]

        @hookimpl
        def provide_single_dim_strategy():
            return [
                SingleDimStrategy("aten.sin.default", pointwise(), variants=True, samples=samples),
                SingleDimStrategy("aten.sin_.default", pointwise()),
            ]
        """,
    )
    targets = {s.name: s for s in find_targets(read_settings(), ["variant-rules"])}
    assert {"aten.sin.default", "aten.sin.out", "aten.sin_.default"} < set(targets)
    written = targets["aten.sin.out"]
    assert written.op is not None
    found = samples_for(written.op, written.samples, limit=4)
    assert (found.source, len(found.calls)) == ("author", 1)
    assert tuple(found.calls[0].kwargs["out"].shape) == (4, 6)
