"""`dtensor-registry new`: whole outputs, what is refused, nothing half-written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import importlib_metadata
import pytest

from dtensor_registry.cli import main
from dtensor_registry_kit.commands.new import NewReport, fill

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = Path(__file__).parents[3] / "docs" / "new.schema.json"

FILES = [
    "README.md",
    "pyproject.toml",
    "src/blue_rules/__init__.py",
    "src/blue_rules/ops.py",
    "src/blue_rules/rules.py",
    "src/blue_rules/samples.py",
    "tests/test_conformance.py",
]

NAMES = """\
from dtensor_registry_kit import StrategyConformance


class TestConformance(StrategyConformance):
    distribution = "Blue.Rules"
"""


def written(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_plain_output_says_what_was_made_and_how_to_check_it(capsys: Any) -> None:
    assert main(["new", "blue-rules"]) == 0
    listed = "".join(f"  {file}\n" for file in FILES)
    assert capsys.readouterr().out == (
        f"blue-rules: 7 files\n{listed}\n"
        + dedent("""\
            Install it and check it:
              pip install -e 'blue-rules[test]'
              pytest blue-rules
              dtensor-registry verify blue-rules
        """)
    )
    assert written(Path("blue-rules")) == FILES
    assert os.listdir() == ["blue-rules"]


def test_json_is_what_the_published_schema_says(capsys: Any) -> None:
    published = json.loads(SCHEMA.read_text("utf-8"))
    assert published == NewReport.model_json_schema(mode="serialization"), (
        "python -m tests.diagnosis.write_schemas"
    )
    Path("here").mkdir()
    assert main(["new", "Blue.Rules", "--into", "here", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == set(published["required"])
    assert report == {
        "folder": "here/Blue.Rules",
        "distribution": "Blue.Rules",
        "plugin": "blue-rules",
        "package": "blue_rules",
        "files": FILES,
    }
    assert written(Path("here/Blue.Rules")) == FILES


def test_a_name_goes_into_each_place_in_the_form_that_is_due_there() -> None:
    files = fill("Blue.Rules")
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["name"] == "Blue.Rules"
    assert project["project"]["entry-points"]["dtensor_registry"] == {"blue-rules": "blue_rules"}
    assert files["tests/test_conformance.py"] == NAMES
    assert '"blue_rules::gated"' in files["src/blue_rules/ops.py"]
    assert "$" not in "".join(files.values())


def test_the_package_asks_for_a_host_of_this_minor_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib_metadata, "version", lambda name: "3.4.5rc1")
    required = tomllib.loads(fill("blue-rules")["pyproject.toml"])["project"]["dependencies"]
    assert required == ["dtensor-registry==3.4.*", "torch"]

    def unknown(name: str) -> str:
        raise importlib_metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib_metadata, "version", unknown)
    required = tomllib.loads(fill("blue-rules")["pyproject.toml"])["project"]["dependencies"]
    assert required == ["dtensor-registry", "torch"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("-rules", "'-rules' cannot name a distribution: letters, digits and - _ . between them"),
        ("blue rules", "'blue rules' cannot name a distribution"),
        ("../rules", "'../rules' cannot name a distribution"),
        ("", "'' cannot name a distribution"),
        ("3d-rules", "'3d-rules' would be imported as '3d_rules', which Python does not allow"),
        ("class", "'class' would be imported as 'class', which Python does not allow"),
        ("torch", "'torch' means something else in settings"),
        ("Local", "'Local' means something else in settings"),
    ],
)
def test_a_name_that_cannot_be_one_exits_with_2(name: str, said: str, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["new", "--", name] if name.startswith("-") else ["new", name])
    assert os.listdir() == []
    if not name.startswith("-"):
        assert f"argument NAME: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["json", "pluggy", "dtensor-registry"])
def test_a_name_that_would_hide_an_installed_module_is_refused(name: str, capsys: Any) -> None:
    assert main(["new", name]) == 2
    assert "a module of that name is installed already; nothing was" in capsys.readouterr().err
    assert os.listdir() == []


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_what_is_there_already_is_left_alone(kind: str, capsys: Any) -> None:
    target = Path("blue-rules")
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    assert main(["new", "blue-rules"]) == 2
    assert capsys.readouterr().err == ("error: blue-rules is there already; nothing was written\n")
    assert os.listdir() == ["blue-rules"]
    assert kind != "folder" or os.listdir(target) == []


def test_a_folder_that_is_not_there_is_not_made(capsys: Any) -> None:
    assert main(["new", "blue-rules", "--into", "nowhere"]) == 2
    assert capsys.readouterr().err == "error: --into nowhere: there is no such folder\n"
    assert os.listdir() == []


def test_what_cannot_be_written_in_full_is_not_written_at_all(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    write = Path.write_text

    def full(self: Path, *arguments: Any) -> int:
        if self.name == "samples.py":
            raise OSError(28, "No space left on device")
        return write(self, *arguments)

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["new", "blue-rules"]) == 2
    told = "error: blue-rules: cannot be written: No space left on device\n"
    assert capsys.readouterr().err == told
    assert os.listdir() == []
