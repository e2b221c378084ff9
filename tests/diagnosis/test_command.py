"""`dtensor-registry doctor`: whole outputs, exit codes, the published schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from dtensor_registry.cli import main
from dtensor_registry.cli.doctor import DoctorReport
from dtensor_registry.torch_patch.override_stack import LOAN

DOCS = Path(__file__).parents[2] / "docs"

PLUGIN = """
    from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

    @hookimpl
    def provide_single_dim_strategy():
        return [
            SingleDimStrategy("aten.exp.default", pointwise()),
            SingleDimStrategy("doctor_test.later", pointwise()),
        ]
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], fake_distribution: Any, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Install a plugin, and run the command: `run("--json") -> exit code, out, err`."""
    fake_distribution("acme-rules", dedent(PLUGIN))
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules", "bad-rules"]')

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["doctor", *arguments])
        told = capsys.readouterr()
        out = re.sub(r"\b[0-9a-f]{64}\b", "HASH", told.out)
        # Other plugins of this environment are not allowed; who they are is not asked here.
        out = re.sub(r"; \d+ not allowed: [\w, ]+", "", out)
        return code, out.replace(torch.__version__, "TORCH"), told.err

    return call


FINE = """\
ok    torch          TORCH, tested from 2.13.0 to 2.15.0
ok    private names  all N that the host stands on are there
warn  settings       other than by default: allowed
        setting 'allowed' names 'bad-rules', which is not installed; did you mean 'acme-rules'?
        next:  change them; where each comes from:  docs/settings.md
ok    plugins        1 active: acme
ok    metadata       nothing is passed over
ok    conflicts      none
ok    rules          2 ops ruled by plugins (acme 2), 1 in place of torch, 1 pending
ok    in force       nothing in this process
ok    tables         nothing of the host's
ok    other code     all other rules are torch's own
ok    autoload       off; DTENSOR_REGISTRY_AUTOLOAD=1 installs when DTensor is imported
ok    compile cache  cache_key_tag is ''
ok    fingerprint    HASH
"""


def test_plain_output_is_one_line_each_with_the_next_step(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert re.sub(r"all \d+ that", "all N that", out) == FINE


def test_a_failing_line_makes_the_exit_code_1(run: Run, fake_distribution: Any) -> None:
    module = fake_distribution("bad-rules", "import no_such_module")
    code, out, err = run()
    assert (code, err) == (1, "")
    assert (
        dedent(f"""\
        ok    settings       other than by default: allowed
        fail  plugins        1 active: acme; 1 failed: bad
                bad, of bad-rules 1.0 (entry point 'bad', {module}): importing it raised \
ModuleNotFoundError: No module named 'no_such_module'
                next:  mend it, or switch it off:  DTENSOR_REGISTRY_DISABLED='["bad"]'
        ok    metadata       nothing is passed over
        ok    conflicts      none
    """)
        in out
    )


def test_json_is_what_the_published_schema_says(run: Run) -> None:
    published = json.loads((DOCS / "doctor.schema.json").read_text("utf-8"))
    assert published == TypeAdapter(DoctorReport).json_schema(mode="serialization"), (
        "python -m tests.diagnosis.write_schemas"
    )
    code, out, _ = run("--json")
    report = json.loads(out)
    TypeAdapter(DoctorReport).validate_python(report)
    assert (code, set(report)) == (0, set(published["required"]))
    assert report["state"] == "warn"
    assert report["checks"][2] == {
        "about": "settings",
        "state": "warn",
        "told": "other than by default: allowed",
        "details": [
            "setting 'allowed' names 'bad-rules', which is not installed;"
            " did you mean 'acme-rules'?"
        ],
        "next_step": "change them; where each comes from:  docs/settings.md",
    }
    assert {check["about"]: check["state"] for check in report["checks"]}["fingerprint"] == "ok"


def test_the_page_on_it_has_a_line_for_each_check(run: Run) -> None:
    checks = json.loads(run("--json")[1])["checks"]
    table = (DOCS / "doctor.md").read_text("utf-8").partition("| --- |")[2]
    lines = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)
    sometimes = ("corrections", "lock")  # lines of what is not there in every process
    assert [line for line in lines if line not in sometimes] == [check["about"] for check in checks]
    assert set(sometimes) < set(lines)


def test_it_leaves_nothing_in_force(run: Run) -> None:
    run()
    assert LOAN.layers == ()


def test_a_setting_that_cannot_be_read_exits_with_2(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTENSOR_REGISTRY_ORDER", "acme")
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_a_wrong_command_line_exits_with_2(run: Run) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("everything")
