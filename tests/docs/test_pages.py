"""The pages say what is there: hooks with their signatures, links that lead somewhere."""

from __future__ import annotations

import inspect
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from dtensor_registry import hookspecs
from dtensor_registry.cli.command_line import parse

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "plugins/*/README.md", "examples/*/README.md")
    for page in ROOT.glob(pattern)
)
HOOKS = [name for name in vars(hookspecs) if name.startswith("provide_")]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def anchors(page: Path) -> set[str]:
    """Name the headings of a page as links do: lower case, dashes for blanks, no other signs."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_heading_with_its_exact_signature(hook: str) -> None:
    signature = inspect.signature(getattr(hookspecs, hook))
    shown = re.sub(r"(\w+\.)+", "", str(signature))  # Iterable[X], not where it comes from
    assert f"## `{hook}{shown}`" in (ROOT / "docs/hooks.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for file, anchor in LINK.findall(page.read_text("utf-8")):
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(f"{file}#{anchor}")
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_is_one(page: Path) -> None:
    text = page.read_text("utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:\$ | {4}(?:\$ )?)(dtensor-registry .*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)[1:]
        if not {"...", "--print-completion", "--help"} & set(words):
            assert parse(words).command, line


def test_the_index_lists_every_page_and_schema() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    listed = {file for file, _ in LINK.findall(index)}
    docs = ROOT / "docs"
    there = {file.name for file in [*docs.glob("*.md"), *docs.glob("*.schema.json")]}
    assert there - listed == {"README.md"}


def test_the_readme_leads_to_the_index() -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text("utf-8")
