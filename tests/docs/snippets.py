"""Fenced blocks of a page, and how those that are Python are run."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Snippet:
    """One fenced block.

    Attributes:
        page: the file.
        section: the `##` heading above it.
        language: as the fence says.
        code: what is inside.
        line: of the page that it starts on.
    """

    page: Path
    section: str
    language: str
    code: str
    line: int


def snippets(page: Path) -> Iterator[Snippet]:
    """Find the blocks of a page, in the order in which a reader meets them."""
    text = page.read_text("utf-8")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        above = text[: match.start()]
        headings = re.findall(r"^## (.*)$", above, re.MULTILINE) or [""]
        line = text.count("\n", 0, match.start(2)) + 1
        yield Snippet(page, headings[-1], match[1], match[2], line)


def run_python(snippet: Snippet, names: dict[str, Any]) -> None:
    """Run a block of Python or of a Python session; its lines are those of the page."""
    if snippet.language == "python":
        source = "\n" * (snippet.line - 1) + snippet.code
        exec(compile(source, str(snippet.page), "exec"), names)
        return
    parser = doctest.DocTestParser()
    page = snippet.page
    test = parser.get_doctest(snippet.code, names, page.name, str(page), snippet.line - 1)
    told: list[str] = []
    doctest.DocTestRunner().run(test, out=told.append, clear_globs=False)
    names.update(test.globs)
    assert not told, "".join(told)
