"""The host reads no pickle, evaluates no text, and opens no connection."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dtensor_registry

ROOT = Path(dtensor_registry.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MODULES = {"dill", "ftplib", "http", "marshal", "pickle", "requests", "shelve", "socket", "urllib"}
CALLS = {"eval", "exec", "load_state_dict", "all_gather_object", "broadcast_object_list"}


def dangers(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            function = node.func
            called = getattr(function, "id", None) or getattr(function, "attr", None)
            if called in CALLS:
                yield f"{file.relative_to(ROOT)}:{node.lineno} calls {called}"
            continue
        else:
            continue
        yield from (
            f"{file.relative_to(ROOT)}:{node.lineno} imports {name}"
            for name in names
            if name.partition(".")[0] in MODULES
        )


def test_nothing_of_the_host_unpickles_evaluates_or_connects() -> None:
    assert len(FILES) > 50
    assert [danger for file in FILES for danger in dangers(file)] == []


def test_the_check_finds_what_it_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = tmp_path / "planted.py"
    file.write_text("import pickle\nfrom urllib.request import urlopen\neval('1')\n")
    assert list(dangers(file)) == [
        "planted.py:1 imports pickle",
        "planted.py:2 imports urllib.request",
        "planted.py:3 calls eval",
    ]
