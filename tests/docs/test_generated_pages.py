"""Pages and schemas that are made from the code are up to date, and say what commands do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.cli import main
from dtensor_registry.cli.commands import find_commands
from dtensor_registry.settings import Settings, read_settings
from tests.docs.snippets import DOCS, snippets
from tests.docs.write_pages import SCHEMAS, pages, schema_of

REMEDY = "python -m tests.docs.write_pages"


@pytest.mark.parametrize("file", sorted(pages()))
def test_a_page_is_up_to_date(file: str) -> None:
    assert (DOCS / file).read_text("utf-8") == pages()[file], REMEDY


@pytest.mark.parametrize("command", find_commands().usable, ids=lambda command: command.name)
def test_every_command_has_a_published_schema(command: Any) -> None:
    schema = json.loads((DOCS / schema_of(command)).read_text("utf-8"))
    titles = {"explain": "ExplanationReport", "lock": "Lock"}
    title = titles.get(command.name, f"{command.name.title()}Report")
    assert schema.get("title", schema.get("$ref", "")).endswith(title)


# Of `verify`, tests/new/test_generated.py.
@pytest.mark.parametrize("arguments", [["plugins"], ["plugins", "--load"], ["ops"]])
def test_json_is_what_the_published_schema_says(
    arguments: list[str], fake_distribution: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    source = """
        from dtensor_registry import SingleDimStrategy, einsum, hookimpl

        @hookimpl
        def provide_single_dim_strategy():
            return [SingleDimStrategy("aten.mm.default", einsum("mk,kn->mn"))]
    """
    fake_distribution("blue-rules", source)
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["blue-rules"]')
    assert main([*arguments, "--json"]) == 0
    text = capsys.readouterr().out
    SCHEMAS[arguments[0]].model_validate_json(text, strict=False)
    published = json.loads((DOCS / f"{arguments[0]}.schema.json").read_text("utf-8"))
    assert set(published["required"]) <= set(json.loads(text)) <= set(published["properties"])


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if name != "fallback"] == [
        name for name, field in Settings.model_fields.items() if field.description
    ]


def test_the_settings_on_the_page_are_read() -> None:
    (snippet,) = snippets(DOCS / "settings.md")
    Path("dtensor_registry.toml").write_text(snippet.code)
    link = read_settings().links["tp"]
    assert (link.bandwidth, link.latency) == (300.0, 1.0)
