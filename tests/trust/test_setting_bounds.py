"""A settings file that is there counts or is an error; every value has bounds; remedies work."""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.cli import main
from dtensor_registry.errors import SettingsError
from dtensor_registry.settings import read_settings

FILES = ("dtensor_registry.toml", "pyproject.toml")
PREFIX = "DTENSOR_REGISTRY_"

UNREADABLE: dict[str, Callable[[str], Any]] = {
    "a symlink to itself": lambda file: os.symlink(file, file),
    "a symlink to nothing": lambda file: os.symlink("nowhere", file),
    "a folder": os.mkdir,
    "a pipe": os.mkfifo,
    "a device without end": lambda file: os.symlink("/dev/zero", file),
    "no UTF-8": lambda file: Path(file).write_bytes(b"lock = '\xe9'"),
    "no TOML": lambda file: Path(file).write_text("order = ["),
    "nested deeply": lambda file: Path(file).write_text(f"a = {'[' * 9999}{']' * 9999}"),
}


def error_of(**arguments: Any) -> SettingsError:
    """Read the settings in a thread, so that a hang is a failure."""
    caught: list[BaseException] = []

    def read() -> None:
        try:
            read_settings(**arguments)
        except BaseException as error:
            caught.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(30)
    assert not reader.is_alive(), "reading the settings hangs"
    assert caught, "the settings were accepted"
    assert isinstance(caught[0], SettingsError), repr(caught[0])
    return caught[0]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_settings_file_that_cannot_be_read_is_an_error_with_its_name(
    kind: str, file: str
) -> None:
    UNREADABLE[kind](file)
    error = error_of()
    assert error.places == (file,)
    assert str(error).startswith(f"{file} in the working directory cannot be read: ")


def test_a_folder_with_the_name_of_a_settings_file_is_no_fault_of_the_host(
    capsys: pytest.CaptureFixture[str],
) -> None:
    os.mkdir("pyproject.toml")
    assert main(["plugins"]) == 2
    told = capsys.readouterr().err
    assert "pyproject.toml" in told
    assert "fault of dtensor-registry" not in told


@pytest.mark.parametrize(
    ("text", "key"),
    [("tool = [1]", "tool"), ("[tool]\ndtensor_registry = 3", "tool.dtensor_registry")],
)
def test_a_table_of_pyproject_that_is_none_is_named_with_its_value(text: str, key: str) -> None:
    Path("pyproject.toml").write_text(text)
    error = error_of()
    assert (error.places, error.keys) == (("pyproject.toml",), (key,))
    assert str(error).startswith(f"pyproject.toml: {key} = {text.rpartition('= ')[2]}: must be a")
    assert "Write:  [tool.dtensor_registry]" in str(error)


OUT_OF_BOUNDS: list[tuple[str, str, str]] = [
    ("ORDER", '["*", "*"]', "names '*' twice"),
    ("ORDER", '["acme", "torch", "acme"]', "names 'acme' twice"),
    ("ORDER", '[""]', "must not be empty"),
    ("ORDER", '["\\ud800"]', "cannot be written as UTF-8"),
    ("ORDER", "null", "must be a list of texts"),
    ("PINS", '{"": "torch"}', "must not be empty"),
    ("PINS", '{"aten.mm.default": " "}', "must not be empty"),
    ("DISABLED", '[""]', "must not be empty"),
    ("ALLOWED", '["acme", ""]', "must not be empty"),
    ("MAY_OVERRIDE", '[""]', "must not be empty"),
    ("REQUIRED", '["=1"]', "is no requirement"),
    ("FALLBACK__ORDER", '["*", "*"]', "names '*' twice"),
    ("FALLBACK__MAX_BYTES", "-1", "greater than or equal to 0"),
    ("FALLBACK__MAX_BYTES", "9" * 9999, "exceeded maximum size"),
    ("FALLBACK__OPS", '{"": []}', "must not be empty"),
    ("LINKS__TP__BANDWIDTH", "1e400", "finite"),
    ("LINKS__TP__BANDWIDTH", "0", "greater than 0"),
    ("LINKS__TP__LATENCY", "inf", "finite"),
    ("LINKS__TP__LATENCY", "nan", "finite"),
    ("LINKS", '{"": {"latency": 1}}', "must not be empty"),
    ("LOCK", "", "must not be empty"),
    ("MAX_ROWS", "0", "greater than or equal to 1"),
    ("MAX_ROWS", "1e400", "valid integer"),
]


@pytest.mark.parametrize(("name", "value", "problem"), OUT_OF_BOUNDS)
def test_a_value_out_of_bounds_is_an_error_that_names_variable_and_problem(
    name: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    error = error_of()
    assert problem in str(error)
    assert len(str(error)) < 2000
    if name != "LINKS":
        assert f"environment variable {PREFIX}{name}" in str(error)
        assert error.places[0] == f"environment variable {PREFIX}{name}"


WRONG = ["", "x", "3", "null", "[", '{"a"', "[1]", '{"a": {}}', "[" * 99999, "[" * 999 + "]" * 999]


@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize(
    "name", ["ORDER", "PINS", "DISABLED", "ALLOWED", "FALLBACK", "FALLBACK__OPS", "LINKS"]
)
def test_what_an_error_of_a_setting_tells_the_user_to_write_is_accepted(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    if (name, value) in {("ALLOWED", "null"), ("LINKS", '{"a": {}}')}:
        assert read_settings().model_fields_set <= {name.lower()}  # nothing is wrong with these
        return
    told = str(error_of())
    for line in re.findall(r"Write:  (DTENSOR_REGISTRY_.*?)(?:, or unset it)?$", told, re.M):
        (assignment,) = shlex.split(line)
        variable, _, written = assignment.partition("=")
        monkeypatch.setenv(variable, written)
        assert read_settings().model_fields_set


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_any_argument_can_be_shown_in_an_error() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in (Hostile(), deep, {"a": deep}, ["x" * 10**6] * 3 + [1]):
        assert len(str(error_of(order=value))) < 2000
