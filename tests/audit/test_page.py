"""The page of an audit in a browser: it sorts, it can be used by keyboard, it asks for nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.auditing import AuditReport, AuditRow, LineRow
from dtensor_registry.auditing.page import audit_page
from dtensor_registry.rules.strategy import SourceLine

CHROMIUM = shutil.which("chromium")


def op(name: str, kind: str, size: int) -> AuditRow:
    return AuditRow(
        op=name,
        calls=1,
        kind=kind,
        decided_by="nobody" if kind == "none" else "<script>alert(1)</script>",
        placements=("R <- R",),
        moved={"S(0) -> R": 1},
        collectives={"all_gather": 1},
        bytes=size,
        lines=(LineRow(SourceLine("train.py", 1), backward=True, calls=1, bytes=size),),
        reason="nobody has a rule" if kind == "none" else "",
    )


REPORT = AuditReport(
    program="train.py",
    mesh="2x4",
    ranks=8,
    ops=(op("a.none.default", "none", 0), op("b.big.default", "plugin", 900)),
    lacking=("a.none.default",),
    stopped=None,
    made_up={"train.py:9": 2},
    in_force=True,
)

CHECK = """<script>
const headings = [...document.querySelectorAll("#ops-table th button")];
const first = () => document.querySelector("#ops-table tbody tr th").textContent;
const before = first();
headings[5].focus(); headings[5].click(); headings[5].click();
document.title = JSON.stringify({
  before, after: first(), focused: document.activeElement === headings[5],
  sorted: headings[5].closest("th").getAttribute("aria-sort"),
  bars: document.querySelectorAll("#ops-table .bar").length,
  loaded: performance.getEntriesByType("resource").length,
});
</script>"""


def test_what_a_plugin_calls_itself_is_shown_and_not_obeyed() -> None:
    pytest.importorskip("jinja2")
    text = audit_page(REPORT)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "2 times the program read a value" in text
    assert "a.none.default</code> at <code>train.py:1</code>: nobody has a rule" in text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_click_on_a_heading_sorts_the_table(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    file = tmp_path / "audit.html"
    file.write_text(audit_page(REPORT).replace("</body>", f"{CHECK}</body>"), "utf-8")
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    title = re.search("<title>(.*?)</title>", done.stdout)
    assert title is not None
    found: dict[str, Any] = json.loads(title[1].replace("&quot;", '"'))
    assert found == {
        "before": "a.none.default",
        "after": "b.big.default",
        "focused": True,
        "sorted": "descending",
        "bars": 2,
        "loaded": 0,
    }
