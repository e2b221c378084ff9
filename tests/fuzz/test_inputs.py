"""Whatever a user types, the answer is a value or a named error, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dtensor_registry.cli import main
from dtensor_registry.discovery import PluginWarning
from dtensor_registry.errors import (
    InvalidContributionError,
    LockFileError,
    NotationError,
    PlacementSyntaxError,
    RegistryError,
    SettingsError,
)
from dtensor_registry.lock import Lock, parse_lock, write_lock
from dtensor_registry.lock.values import FORMAT
from dtensor_registry.placements import parse_placements, show_placements
from dtensor_registry.rules import einsum, notation
from dtensor_registry.rules.strategy import op_name
from dtensor_registry.settings import PREFIX, FallbackSettings, Settings, read_settings

LONG = bool(os.environ.get("DTENSOR_REGISTRY_LONG"))
plain = settings(
    deadline=None,
    derandomize=not LONG,
    database=None,
    suppress_health_check=list(HealthCheck),
)

fuzzed = settings(plain, max_examples=5000 if LONG else 100)

NAMES = [*Settings.model_fields, *FallbackSettings.model_fields, "ordre", "fallback__mode", ""]
WORDS = ["*", "torch", "acme", "aten.mm.default", "error", "skip", "acme-rules>=1.2", "a:aten.*"]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES + WORDS), inner, max_size=3)
    ),
    max_leaves=6,
)


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for variable in variables:
            os.environ.pop(variable, None)


def outcome(action: Callable[..., Any], *arguments: Any) -> Any:
    """Give what an action returns, or the error of ours that it raises; any other gets through."""
    try:
        return action(*arguments)
    except RegistryError as error:
        return error


def settings_or_a_named_error(read: Callable[[], Any]) -> None:
    assert isinstance(outcome(read), (Settings, SettingsError))


@fuzzed
@given(st.dictionaries(st.sampled_from(NAMES), values, max_size=3))
def test_any_arguments_are_settings_or_a_settings_error(arguments: dict[str, Any]) -> None:
    settings_or_a_named_error(lambda: read_settings(**arguments))


@fuzzed
@given(
    st.sampled_from(NAMES),
    st.text(st.characters(exclude_characters="\0", codec="utf-8")) | values.map(json.dumps),
)
def test_any_variable_is_settings_or_a_settings_error(name: str, value: str) -> None:
    with environment(**{f"{PREFIX}{name.upper()}": value.replace("\0", "")}):
        settings_or_a_named_error(read_settings)


@fuzzed
@given(
    st.sampled_from(["dtensor_registry.toml", "pyproject.toml"]),
    st.binary(max_size=60)
    | st.tuples(st.sampled_from(NAMES), values).map(
        lambda pair: f"[tool.dtensor_registry]\n{pair[0]} = {json.dumps(pair[1])}\n".encode()
    )
    | st.tuples(st.sampled_from(NAMES), values).map(
        lambda pair: f"{pair[0]} = {json.dumps(pair[1])}\n".encode()
    ),
)
@example("pyproject.toml", b"tool = 3")
@example("pyproject.toml", b"[tool]\ndtensor_registry = 3")
@example("dtensor_registry.toml", b"fallback = 3")
def test_any_file_is_settings_or_a_settings_error(file: str, content: bytes) -> None:
    path = Path(file)
    path.write_bytes(content)
    try:
        settings_or_a_named_error(read_settings)
    finally:
        path.unlink()


pieces = st.lists(
    st.sampled_from([*"mknb ,->.()[]=+*|:~?1", "...", "->", "(m k)", "m=2", "é", "\n", "\t", "m1"]),
    max_size=12,
).map("".join)


@fuzzed
@given(pieces | st.text(max_size=12))
def test_any_text_is_a_notation_or_a_notation_error_that_points_into_it(text: str) -> None:
    for build in (notation, einsum):
        found = outcome(build, text)
        if isinstance(found, NotationError):
            assert 0 <= found.position <= len(text)
        else:
            assert isinstance(found, InvalidContributionError) or str(found)


@fuzzed
@given(st.lists(st.sampled_from([*"RSP()0123456789,-_ ", "sum", "S(0)", "P(sum)"])).map("".join))
def test_any_text_is_placements_that_print_again_or_a_syntax_error(text: str) -> None:
    found = outcome(parse_placements, text)
    if isinstance(found, PlacementSyntaxError):
        assert 0 <= found.position <= len(text)
    else:
        assert parse_placements(show_placements(found)) == found


@fuzzed
@given(st.text(max_size=12) | st.lists(st.sampled_from([*"a.:", "aten", "mm"])).map("".join))
def test_any_text_is_an_op_name_or_an_invalid_contribution(text: str) -> None:
    found = outcome(op_name, text)
    assert isinstance(found, InvalidContributionError) or found.count(".") in (1, 2)


words = st.sampled_from(["aten.mm.default", "op", "rows", "ground", "ops", "\\ud800", ""])
values = st.recursive(
    words | st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
)
locked = st.fixed_dictionaries(
    dict.fromkeys(("op", "plugin", "distribution", "rule"), words)
    | {"in_torch": st.booleans(), "rows": st.lists(words)}
)
locks = st.fixed_dictionaries(
    {
        "format": st.just(FORMAT) | values,
        "ground": st.dictionaries(words, words) | values,
        "ops": st.lists(locked, max_size=3) | values,
    }
)


@fuzzed
@given((locks | values).map(json.dumps) | st.text(max_size=40))
def test_any_text_is_a_lock_that_is_written_again_or_an_error(text: str) -> None:
    found = outcome(parse_lock, text.encode("utf-8", "replace"), "a lock")
    if isinstance(found, Lock):
        assert parse_lock(write_lock(found).encode(), "a lock") == found
    else:
        assert isinstance(found, LockFileError)


TOKENS = [
    "plugins",
    "ops",
    "lock",
    "--json",
    "--load",
    "--version",
    "-h",
    "--check",
    "aten.mm.default",
    "aten.*",
    "no.such.op",
    "--",
    "-",
    "",
    "é",
    "x" * 300,
    "[",
]


@settings(plain, max_examples=500 if LONG else 25)
@given(st.lists(st.sampled_from(TOKENS), max_size=4))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_command_line_ends_with_an_exit_code(arguments: list[str]) -> None:
    with (
        environment(DTENSOR_REGISTRY_ALLOWED="[]"),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as told,
    ):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    assert code in (0, 1, 2)
    assert "Traceback" not in told.getvalue()


def test_warnings_and_errors_of_the_host_have_names_of_their_own() -> None:
    assert issubclass(PluginWarning, UserWarning)
    assert all(issubclass(kind, RegistryError) for kind in (SettingsError, NotationError))
