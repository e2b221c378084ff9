"""Every snippet of the tutorial runs, in the order in which a reader meets them."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from typing import Any

import pytest

from dtensor_registry.cli import main
from dtensor_registry_kit import StrategyConformance
from tests.docs.snippets import DOCS, Snippet, run_python, snippets

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = DOCS / "write-a-plugin.md"
TEXT = PAGE.read_text("utf-8")
ALL = list(snippets(PAGE))
PLUGIN_ENDS = TEXT.partition("## Check it")[0].count("\n")
"""What is Python above this line is the plugin, what is below uses it."""
NEEDS_RANKS = TEXT.partition("## Use it")[0].count("\n")
"""What is below this line runs on two ranks."""


def is_plugin(snippet: Snippet) -> bool:
    return snippet.language == "python" and snippet.line < PLUGIN_ENDS


def source() -> str:
    """Put the plugin together, each line where the page has it, so that a traceback says where."""
    lines: list[str] = []
    for snippet in filter(is_plugin, ALL):
        lines += [""] * (snippet.line - 1 - len(lines))
        lines += snippet.code.splitlines()
    return "\n".join(lines)


def run(snippet: Snippet, names: dict[str, Any]) -> None:
    """Run one snippet that is not part of the plugin."""
    if snippet.language in ("python", "pycon"):
        run_python(snippet, names)
    elif snippet.language == "console":
        for line in snippet.code.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert (program, main(arguments)) == ("dtensor-registry", 0), line
    else:
        assert snippet.language == "toml", f"line {snippet.line}: nothing runs this"


def test_the_page_runs_from_top_to_bottom(
    fake_distribution: Any, local_mesh: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    declared, added = (tomllib.loads(s.code) for s in ALL if s.language == "toml")
    project = declared["project"]
    ((entry_point, module),) = project["entry-points"]["dtensor_registry"].items()
    name = fake_distribution(
        project["name"],
        source(),
        entry_point=entry_point,
        version=project["version"],
        requires=project["dependencies"],
    )
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", f'["{project["name"]}"]')
    names = vars(importlib.import_module(name))
    try:
        for snippet in ALL:
            if snippet.line > NEEDS_RANKS:
                local_mesh(2)
            if not is_plugin(snippet):
                run(snippet, names)
    finally:
        if "installation" in names:
            names["installation"].uninstall()
    conformance = names["TestConformance"]
    assert issubclass(conformance, StrategyConformance)
    assert conformance.distribution == project["name"]
    assert module == project["name"].replace("-", "_")
    ((command, value),) = added["project"]["entry-points"]["dtensor_registry.commands"].items()
    assert names[value.partition(":")[2]].name == command
    shown = capfd.readouterr().out
    assert all(op in shown for op in ("shop.gated", "shop.route", "shop.shift"))


@pytest.mark.parametrize(
    "template",
    [
        "batched",
        "einsum",
        "like",
        "notation",
        "passthrough",
        "pointwise",
        "reduction",
        "row",
        "rows",
    ],
)
def test_the_page_tells_of_every_template(template: str) -> None:
    assert re.search(rf"\b{template}\(", TEXT)
