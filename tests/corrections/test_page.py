"""docs/corrections.md lists what the plugin leaves out."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "corrections.py"))["page"]
    written = (ROOT / "docs" / "corrections.md").read_text("utf-8")
    assert written == "\n".join(page()) + "\n", (
        "python scripts/corrections.py > docs/corrections.md"
    )
