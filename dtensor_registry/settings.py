"""What the user decides: who may speak, who wins, what happens without a rule.

Read once, at the edge. Sources, the first that sets a field wins: arguments, environment
(`DTENSOR_REGISTRY_ORDER='["acme", "*", "torch"]'`, nested with two underscores:
`DTENSOR_REGISTRY_FALLBACK__MODE=warn`), `dtensor_registry.toml`, `[tool.dtensor_registry]`
in `pyproject.toml`, defaults. Files are those of the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from dtensor_registry.errors import SettingsError
from dtensor_registry.setting_mistakes import (
    PYPROJECT,
    TABLE,
    TOML,
    Place,
    tell_misspelt_places,
    tell_no_json,
    tell_unknown,
    tell_unusable,
)
from dtensor_registry.setting_mistakes import (
    nearest as nearest,
)

PREFIX = "DTENSOR_REGISTRY_"
SWITCHES = ("AUTOLOAD", "LONG")
"""Variables with the prefix that are no settings: see autoload.py and testing/conformance.py."""
EVERYBODY_ELSE = "*"
"""In `order`: every plugin that is not named there."""
TORCH = "torch"
"""In `order`: what torch itself has a rule or a handler for, read as if it were a plugin."""
DEFAULT_ORDER = (EVERYBODY_ELSE, "corrections", TORCH, "pointwise", "matrix", "structure")
"""A vendor's rules, torch's proven faults mended, torch itself, then rules that fill its gaps."""


class FallbackSettings(BaseModel):
    """What happens to an op that has neither rule nor decomposition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["off", "warn", "silent", "error"] = Field(
        default="off",
        description="off: torch's own error; warn: fall back and say so once per op; silent: fall"
        " back; error: fail, naming what each fallback would have done.",
    )
    order: tuple[str, ...] = Field(
        default=("*",), description="Fallbacks by name, asked in this order; * is all others."
    )
    include: tuple[str, ...] = Field(
        default=("*",), description="Globs of the ops that may fall back."
    )
    exclude: tuple[str, ...] = Field(default=(), description="Globs of the ops that may not.")
    ops: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Fallback -> globs of the ops that it may run; without an entry all, but for a"
        " fallback that is right for some ops only (`batch`) none.",
    )
    before_decomposition: bool = Field(
        default=False, description="Ask fallbacks before torch decomposes an op, not after."
    )
    max_bytes: int | None = Field(
        default=None,
        description="Bytes that one call may gather; a call that needs more is an error.",
    )


class LinkSettings(BaseModel):
    """How fast a mesh dim is, where that is known better than torch assumes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bandwidth: float | None = Field(
        default=None, gt=0, description="GB/s (2**30 bytes, as torch counts) between neighbours."
    )
    latency: float | None = Field(default=None, ge=0, description="Microseconds for each hop.")


def _check_of(value: Any) -> Any:
    """Read what the setting was before it had names."""
    try:
        return "wait" if TypeAdapter(bool).validate_python(value) else "off"
    except ValidationError:
        return value


class Settings(BaseSettings):
    """Every setting, its default and its meaning.

    Raises:
        SettingsError: from `read_settings`, for unknown names and unusable values.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        toml_file=TOML,
        pyproject_toml_table_header=("tool", TABLE),
    )

    order: tuple[str, ...] = Field(
        default=DEFAULT_ORDER,
        description="Plugins by name, highest precedence first; * is all others, torch is what"
        " torch itself has a rule or a handler for.",
    )
    pins: dict[str, str] = Field(
        default_factory=dict,
        description="Op -> the plugin that wins it, whatever `order` says; torch: its own way,"
        " with no fallback.",
    )
    disabled: tuple[str, ...] = Field(
        default=(),
        description="Plugins, entry points or distributions that are not loaded, or"
        " `plugin:op-glob` for some ops of one.",
    )
    allowed: tuple[str, ...] | None = Field(
        default=None,
        description="Distributions that may contribute; unset: all, empty: none.",
    )
    may_override: tuple[str, ...] | None = Field(
        default=None,
        description="Plugins or distributions whose rules may replace torch's own; unset: all,"
        " empty: none.",
    )
    required: tuple[str, ...] = Field(
        default=(),
        description='Distributions that must be there, such as "acme-rules>=1.2", and whose rules'
        " must all fit their ops.",
    )
    on_conflict: Literal["error", "skip"] = Field(
        default="error",
        description="Two plugins of equal rank claim an op: fail, or let neither have it.",
    )
    on_plugin_error: Literal["error", "skip"] = Field(
        default="error", description="A plugin is broken: fail, or go on without it and warn."
    )
    fallback: FallbackSettings = FallbackSettings()
    torch_rules: bool = Field(
        default=True, description="Let the host expand torch's own single-dim rules as well."
    )
    links: dict[str, LinkSettings] = Field(
        default_factory=dict,
        description="Mesh dim, by name or by number from the outermost, -> its bandwidth and"
        " latency. That changes which placements are cheapest, never what an op computes.",
    )
    check_ranks: Annotated[Literal["publish", "wait", "off"], BeforeValidator(_check_of)] = Field(
        default="publish",
        description="Compare the rules of the ranks of a mesh when it is first used. publish: each"
        " rank with those that were there before, without waiting; wait: all with all, waiting for"
        " the last; off: not at all. `true` is `wait`, `false` is `off`.",
    )
    lock: str | None = Field(
        default=None,
        description="Lock file that what is installed must equal; written by `dtensor-registry"
        " lock`.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Say which sources there are, the first that sets a field wins."""
        return (
            init_settings,
            env_settings,
            _file_source(TomlConfigSettingsSource, settings_cls, TOML),
            _file_source(PyprojectTomlConfigSettingsSource, settings_cls, PYPROJECT),
        )


def _file_source(
    kind: Callable[[type[BaseSettings]], PydanticBaseSettingsSource],
    settings_cls: type[BaseSettings],
    file: str,
) -> PydanticBaseSettingsSource:
    try:
        return kind(settings_cls)
    except (ValueError, AttributeError) as error:  # no TOML, no UTF-8, or no table where one is due
        raise SettingsError(f"{file} in the working directory cannot be read: {error}") from error


def read_settings(**arguments: Any) -> Settings:
    """Read the settings from all sources.

    Args:
        arguments: fields that win over every other source.

    Raises:
        SettingsError: for an unknown name (with the nearest valid one) or an unusable value.

    >>> read_settings(order=["acme", "*"]).order
    ('acme', '*')
    """
    _refuse_unknown_environment(os.environ)
    try:
        settings = Settings(**arguments)
    except ValidationError as error:
        raise SettingsError(_explain(error, arguments)) from error
    except SourceError as error:
        told = tell_no_json(os.environ, _variables()) or f"{error}: {error.__cause__}"
        raise SettingsError(told) from error
    _refuse_misspelt_places()
    return settings


def _refuse_unknown_environment(environment: Mapping[str, str]) -> None:
    """Pydantic passes over variables it does not know; a misspelt one would do nothing."""
    known = {*_variables(), *(f"{PREFIX}{name}" for name in SWITCHES)}
    for variable in sorted(environment):
        name = variable.upper()
        links = _link_variables(name)
        if name.startswith(PREFIX) and name not in known | links:
            raise SettingsError(
                f"environment variable {variable} is no setting; {nearest(name, links or known)}"
            )


def _link_variables(variable: str) -> set[str]:
    """List the variables for the mesh dim that one names, if it names one."""
    table, *rest = variable.split("__")
    if table != f"{PREFIX}LINKS" or len(rest) != 2 or not rest[0]:
        return set()
    return {f"{table}__{rest[0]}__{name.upper()}" for name in LinkSettings.model_fields}


def _refuse_misspelt_places() -> None:
    """Names with a hyphen are nearly right, and what they hold would do nothing."""
    files = [path.name for path in Path().glob("*.toml")]
    tables: Mapping[str, Any] = {}
    # Not by pydantic's source for this file, which keeps our table alone.
    if PYPROJECT in files and b"dtensor-registry" in Path(PYPROJECT).read_bytes():
        tables = TomlConfigSettingsSource(Settings, PYPROJECT).toml_data.get("tool", {})
    told = tell_misspelt_places(files, tables)
    if told:
        raise SettingsError("\n".join(told))


def _explain(error: ValidationError, arguments: Mapping[str, Any]) -> str:
    places = [Place("", arguments), *_places()]
    lines = []
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        if problem["type"] == "extra_forbidden":
            parts: dict[str, type[BaseModel]] = {
                "fallback": FallbackSettings,
                "links": LinkSettings,
            }
            fields = (parts[path[0]] if len(path) > 1 else Settings).model_fields
            lines.append(tell_unknown(path, fields, places))
        else:
            lines.append(tell_unusable(problem, places))
    return "\n".join(lines)


def _places() -> Iterator[Place]:
    """List the sources beside arguments, the first that sets a field wins."""
    for variable, value in os.environ.items():
        if variable.upper().startswith(PREFIX):
            yield Place.of_variable(variable, PREFIX, value)
    yield Place(TOML, TomlConfigSettingsSource(Settings).toml_data)
    yield Place(PYPROJECT, PyprojectTomlConfigSettingsSource(Settings).toml_data)


def _variables() -> dict[str, str]:
    """List the variables that are settings, in capitals: name -> type, as Python writes it."""
    fields = {name.upper(): field for name, field in Settings.model_fields.items()}
    for name, field in FallbackSettings.model_fields.items():
        fields[f"FALLBACK__{name.upper()}"] = field
    return {f"{PREFIX}{name}": str(field.annotation) for name, field in fields.items()}
