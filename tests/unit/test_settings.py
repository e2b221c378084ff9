"""Settings: where they come from, which source wins, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtensor_registry.errors import SettingsError
from dtensor_registry.settings import read_settings


def write_toml(text: str) -> None:
    Path("dtensor_registry.toml").write_text(text)


def write_pyproject(text: str) -> None:
    Path("pyproject.toml").write_text(text)


def message_of(**arguments: object) -> str:
    with pytest.raises(SettingsError) as caught:
        read_settings(**arguments)
    return str(caught.value)


def test_without_any_source_the_defaults_hold() -> None:
    settings = read_settings()
    assert settings.model_dump() == {
        "order": ("*", "corrections", "torch", "pointwise", "matrix", "structure"),
        "pins": {},
        "disabled": (),
        "allowed": None,
        "may_override": None,
        "required": (),
        "on_conflict": "error",
        "on_plugin_error": "error",
        "fallback": {
            "mode": "off",
            "order": ("*",),
            "include": ("*",),
            "exclude": (),
            "ops": {},
            "before_decomposition": False,
            "max_bytes": None,
        },
        "torch_rules": True,
        "max_rows": 100_000,
        "links": {},
        "check_ranks": "publish",
        "lock": None,
    }


def test_the_first_source_that_sets_a_field_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_disabled(**arguments: object) -> tuple[str, ...]:
        return read_settings(**arguments).disabled

    write_pyproject('[tool.dtensor_registry]\ndisabled = ["from-pyproject"]')
    assert first_disabled() == ("from-pyproject",)
    write_toml('disabled = ["from-toml"]')
    assert first_disabled() == ("from-toml",)
    monkeypatch.setenv("DTENSOR_REGISTRY_DISABLED", '["from-environment"]')
    assert first_disabled() == ("from-environment",)
    assert first_disabled(disabled=["from-argument"]) == ("from-argument",)


def test_sources_that_set_different_fields_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    write_pyproject('[tool.dtensor_registry]\nrequired = ["acme-rules>=1.2"]')
    write_toml('[pins]\n"aten.mm.default" = "torch"')
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", "[]")
    settings = read_settings(on_conflict="skip")
    assert settings.required == ("acme-rules>=1.2",)
    assert settings.pins == {"aten.mm.default": "torch"}
    assert settings.allowed == ()
    assert settings.on_conflict == "skip"


def test_fields_of_the_fallback_come_from_different_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_toml('[fallback]\nmode = "error"\nexclude = ["aten.*"]')
    monkeypatch.setenv("DTENSOR_REGISTRY_FALLBACK__MODE", "warn")
    fallback = read_settings(fallback={"include": ["acme.*"]}).fallback
    assert (fallback.mode, fallback.include, fallback.exclude) == ("warn", ("acme.*",), ("aten.*",))


def test_a_project_file_of_somebody_else_is_passed_over() -> None:
    write_pyproject('[project]\nname = "theirs"\n[tool.ruff]\nline-length = 100')
    assert read_settings().model_fields_set == set()


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            "DTENSOR_REGISTRY_ORDRE",
            "environment variable DTENSOR_REGISTRY_ORDRE is no setting;"
            " did you mean 'DTENSOR_REGISTRY_ORDER'?",
        ),
        (
            "DTENSOR_REGISTRY_FALLBACK__MODES",
            "environment variable DTENSOR_REGISTRY_FALLBACK__MODES is no setting;"
            " did you mean 'DTENSOR_REGISTRY_FALLBACK__MODE'?",
        ),
        (
            "DTENSOR_REGISTRY_LINKS__TP__BANDWITH",
            "environment variable DTENSOR_REGISTRY_LINKS__TP__BANDWITH is no setting;"
            " did you mean 'DTENSOR_REGISTRY_LINKS__TP__BANDWIDTH'?",
        ),
        (
            "DTENSOR_REGISTRY_PINS__MM",
            "environment variable DTENSOR_REGISTRY_PINS__MM is no setting;"
            " did you mean 'DTENSOR_REGISTRY_PINS'?",
        ),
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, message: str
) -> None:
    monkeypatch.setenv(variable, "x")
    assert message_of() == message


def test_an_unknown_argument_is_told_with_the_nearest_one() -> None:
    assert message_of(ordre=["*"]) == "ordre is no setting; did you mean 'order'?"


def test_an_unknown_key_in_a_file_is_told_with_the_nearest_one() -> None:
    write_toml("requierd = []\n[fallback]\nmod = 'warn'")
    assert message_of() == (
        "dtensor_registry.toml: fallback.mod is no setting; did you mean 'mode'?\n"
        "dtensor_registry.toml: requierd is no setting; did you mean 'required'?"
    )


def test_an_unknown_name_like_no_other_is_told_with_all_that_are() -> None:
    assert message_of(fallback={"zzz": 1}) == (
        "fallback.zzz is no setting; known: before_decomposition, exclude, include, max_bytes,"
        " mode, ops, order"
    )


def test_a_value_that_cannot_be_used_is_told_with_its_field() -> None:
    assert message_of(on_conflict="maybe") == (
        "on_conflict = 'maybe': Input should be 'error' or 'skip'"
    )


@pytest.mark.parametrize("dim", ["TP", "tp", "0"])
def test_a_link_may_be_given_by_variables(monkeypatch: pytest.MonkeyPatch, dim: str) -> None:
    monkeypatch.setenv("DTENSOR_REGISTRY_LINKS", '{"dp": {"latency": 2.0}}')
    monkeypatch.setenv(f"DTENSOR_REGISTRY_LINKS__{dim}__BANDWIDTH", "300")
    monkeypatch.setenv(f"DTENSOR_REGISTRY_LINKS__{dim}__LATENCY", "0")
    links = read_settings().links
    assert links["dp"].latency == 2.0
    assert (links[dim.lower()].bandwidth, links[dim.lower()].latency) == (300.0, 0.0)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "DTENSOR_REGISTRY_ORDER",
            "torch",
            "environment variable DTENSOR_REGISTRY_ORDER: order = 'torch': must be a list of"
            """ texts\n  Write:  DTENSOR_REGISTRY_ORDER='["torch"]'""",
        ),
        (
            "DTENSOR_REGISTRY_ORDER",
            '"torch"',
            "environment variable DTENSOR_REGISTRY_ORDER: order = '\"torch\"': must be a list of"
            """ texts\n  Write:  DTENSOR_REGISTRY_ORDER='["torch"]'""",
        ),
        (
            "DTENSOR_REGISTRY_FALLBACK__INCLUDE",
            "['a.*', b]",
            "environment variable DTENSOR_REGISTRY_FALLBACK__INCLUDE: fallback.include ="
            """ "['a.*', b]": must be a list of texts\n  Write:  """
            """DTENSOR_REGISTRY_FALLBACK__INCLUDE='["a.*", "b"]'""",
        ),
        (
            "DTENSOR_REGISTRY_PINS",
            "torch",
            "environment variable DTENSOR_REGISTRY_PINS: pins = 'torch': must be a table\n"
            """  Write:  DTENSOR_REGISTRY_PINS='{"aten.mm.default": "torch"}', or unset it""",
        ),
        (
            "DTENSOR_REGISTRY_FALLBACK__MODE",
            "maybe",
            "environment variable DTENSOR_REGISTRY_FALLBACK__MODE: fallback.mode = 'maybe': Input"
            " should be 'off', 'warn', 'silent' or 'error'",
        ),
    ],
)
def test_an_unusable_variable_is_told_with_its_name_and_what_to_write(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    write_toml("on_conflict = 'skip'\n[fallback]\nexclude = []")
    monkeypatch.setenv(variable, value)
    assert message_of() == message


def test_an_unusable_value_in_a_file_is_told_with_the_file() -> None:
    write_pyproject("[tool.dtensor_registry]\npins = 3")
    write_toml('order = "torch"\n[links]\ntp = 3')
    assert message_of() == (
        "dtensor_registry.toml: order = 'torch': must be a list of texts, such as [\"torch\"]\n"
        "pyproject.toml: pins = 3: must be a table\n"
        "dtensor_registry.toml: links.tp = 3: must be a table"
    )


def test_an_unusable_argument_is_not_laid_to_a_file_that_has_the_same_setting() -> None:
    write_toml('on_conflict = "skip"')
    assert message_of(on_conflict="maybe").startswith("on_conflict = 'maybe': ")


@pytest.mark.parametrize("header", ["[tool.dtensor_registry]", "[dtensor_registry]"])
def test_a_header_in_our_own_file_is_told_to_be_taken_out(header: str) -> None:
    write_toml(f'{header}\norder = ["torch"]')
    told = message_of()
    assert told.startswith("dtensor_registry.toml: [")
    assert "here settings stand without a header\n  Take out  [tool.dtensor_registry]" in told


def test_a_table_whose_name_has_a_hyphen_is_an_error() -> None:
    write_pyproject('[project]\ndependencies = ["dtensor-registry"]')
    assert read_settings().model_fields_set == set()
    write_pyproject('[tool.dtensor-registry]\norder = ["torch"]')
    assert message_of() == (
        "pyproject.toml: [tool.dtensor-registry] is not read; write [tool.dtensor_registry]"
    )


def test_a_file_whose_name_has_a_hyphen_is_an_error() -> None:
    Path("dtensor-registry.toml").write_text('order = ["torch"]')
    assert message_of() == "dtensor-registry.toml is not read; name it dtensor_registry.toml"


@pytest.mark.parametrize("file", ["dtensor_registry.toml", "pyproject.toml"])
def test_a_file_that_is_no_toml_is_a_settings_error_that_names_it(file: str) -> None:
    Path(file).write_text("order = [")
    assert file in message_of()


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        read_settings().order = ()
