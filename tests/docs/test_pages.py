"""The pages say what is there: hooks with their signatures, links that lead somewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from dtensor_registry import hookspecs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/*/README.md")])
HOOKS = [name for name in vars(hookspecs) if name.startswith("provide_")]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_heading_with_its_exact_signature(hook: str) -> None:
    signature = inspect.signature(getattr(hookspecs, hook))
    shown = re.sub(r"(\w+\.)+", "", str(signature))  # Iterable[X], not where it comes from
    assert f"## `{hook}{shown}`" in (ROOT / "docs/hooks.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
