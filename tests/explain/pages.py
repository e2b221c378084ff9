"""Looking at a page: its elements without a browser, and what a browser makes of it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_VOID = {"meta", "br", "line", "rect", "link", "input", "img", "hr"}


@dataclass
class Element:
    """One element of a page."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list[Element]:
        """List the elements of a kind below this one."""
        found = [child for child in self.children if child.tag == tag]
        return found + [inner for child in self.children for inner in child.all(tag)]

    def every(self) -> list[Element]:
        """List all elements below this one."""
        return self.children + [inner for child in self.children for inner in child.every()]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return  # a browser writes <line></line>
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data


def read_page(html: str) -> Element:
    """Read a page whose elements are all closed, and in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert len(reader.open) == 1, f"<{reader.open[-1].tag}> is never closed"
    return reader.root


def browser() -> str | None:
    """Find a browser that can run without a screen."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def look(page: Path, script: str, *, dark: bool = False) -> Element:
    """Let a browser run a script at the end of a page, and read what is there then."""
    program = browser()
    assert program is not None
    folder = page.parent / "looked-at"
    folder.mkdir(exist_ok=True)
    copy = folder / page.name
    ended = page.read_text("utf-8").replace("</body>", f"<script>{script}</script></body>")
    copy.write_text(ended, "utf-8")
    done = subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return read_page(done.stdout)
