"""What the user decides: who may speak, who wins, what happens without a rule.

Read once, at the edge. Sources, the first that sets a field wins: arguments, environment
(`DTENSOR_REGISTRY_ORDER='["acme", "*", "torch"]'`, nested with two underscores:
`DTENSOR_REGISTRY_FALLBACK__MODE=warn`), `dtensor_registry.toml`, `[tool.dtensor_registry]`
in `pyproject.toml`, defaults. Files are those of the working directory.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from dtensor_registry.errors import SettingsError
from dtensor_registry.rules.strategy import MAX_ROWS
from dtensor_registry.setting_mistakes import (
    PREFIX,
    PYPROJECT,
    TABLE,
    TOML,
    Source,
    misspelt_messages,
    shown,
    source_of,
    unknown_message,
    unusable_message,
)
from dtensor_registry.setting_mistakes import nearest as nearest

SWITCHES = ("AUTOLOAD", "LONG")
"""Variables with the prefix that are no settings: see autoload.py and testing/conformance.py."""
EVERYBODY_ELSE = "*"
"""In `order`: every plugin that is not named there."""
TORCH = "torch"
"""In `order`: what torch itself has a rule or a handler for, read as if it were a plugin."""
DEFAULT_ORDER = (EVERYBODY_ELSE, "corrections", TORCH, "pointwise", "matrix", "structure")
"""A vendor's rules, torch's proven faults mended, torch itself, then rules that fill its gaps."""


def _named(value: str) -> str:
    """Refuse texts that can be no name of anything."""
    if not value.strip():
        raise ValueError("must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("has a character that cannot be written as UTF-8") from error
    return value


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list of steps that names one twice: which of them would count?"""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"names {twice[0]!r} twice; name each once")
    return names


def _requirement(text: str) -> str:
    """Refuse what pip could not read."""
    try:
        Requirement(text)
    except InvalidRequirement as error:
        first = str(error).partition("\n")[0]
        message = f'is no requirement, such as "acme-rules>=1.2": {first}'
        raise ValueError(message) from error
    return text


Name = Annotated[str, AfterValidator(_named)]
Steps = Annotated[tuple[Name, ...], AfterValidator(_each_once)]


class FallbackSettings(BaseModel):
    """What happens to an op that has neither rule nor decomposition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["off", "warn", "silent", "error"] = Field(
        default="off",
        description="off: torch's own error; warn: fall back and say so once per op; silent: fall"
        " back; error: fail, naming what each fallback would have done.",
    )
    order: Steps = Field(
        default=("*",), description="Fallbacks by name, asked in this order; * is all others."
    )
    include: tuple[Name, ...] = Field(
        default=("*",), description="Globs of the ops that may fall back."
    )
    exclude: tuple[Name, ...] = Field(default=(), description="Globs of the ops that may not.")
    ops: dict[Name, tuple[Name, ...]] = Field(
        default_factory=dict,
        description="Fallback -> globs of the ops that it may run; without an entry all, but for a"
        " fallback that is right for some ops only (`batch`) none.",
    )
    before_decomposition: bool = Field(
        default=False, description="Ask fallbacks before torch decomposes an op, not after."
    )
    max_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Bytes that one call may gather; a call that needs more is an error.",
    )


class LinkSettings(BaseModel):
    """How fast a mesh dim is, where that is known better than torch assumes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bandwidth: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="GiB/s (2**30 bytes per second) between neighbours.",
    )
    latency: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="Microseconds for each hop."
    )


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
        extra="forbid",
        frozen=True,
    )

    order: Steps = Field(
        default=DEFAULT_ORDER,
        description="Plugins by name, highest precedence first; * is all others, torch is what"
        " torch itself has a rule or a handler for.",
    )
    pins: dict[Name, Name] = Field(
        default_factory=dict,
        description="Op -> the plugin that wins it, whatever `order` says; torch: its own way,"
        " with no fallback.",
    )
    disabled: tuple[Name, ...] = Field(
        default=(),
        description="Plugins, entry points or distributions that are not loaded, or"
        " `plugin:op-glob` for some ops of one.",
    )
    allowed: tuple[Name, ...] | None = Field(
        default=None,
        description="Distributions that may contribute; unset: all, empty: none.",
    )
    may_override: tuple[Name, ...] | None = Field(
        default=None,
        description="Plugins or distributions whose rules may replace torch's own; unset: all,"
        " empty: none.",
    )
    required: tuple[Annotated[Name, AfterValidator(_requirement)], ...] = Field(
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
    max_rows: int = Field(
        default=MAX_ROWS,
        ge=1,
        le=10_000_000,
        description="Rows that a rule may give for one call; a rule that gives more has failed.",
    )
    links: dict[Name, LinkSettings] = Field(
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
    lock: Name | None = Field(
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
        rest = (InitSettingsSource(settings_cls, dict(source.data)) for source in _sources())
        return (init_settings, *rest)


def _table(file: str, *path: str) -> dict[str, Any]:
    """Read a table of a settings file of the working directory; empty if there is none.

    Raises:
        SettingsError: for a file that is there and cannot be read, or what is no table.
    """
    if not os.path.lexists(file):
        return {}
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise OSError("it is no regular file")  # a pipe would be waited for
        with open(file, "rb"):  # what follows would pass over some files that cannot be opened
            data: Any = TomlConfigSettingsSource(Settings, file).toml_data
    except RecursionError as error:
        raise _unreadable(file, "it is nested too deeply") from error
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise _unreadable(file, str(error)) from error
    for at, name in enumerate(path):
        data = data.get(name, {})
        if not isinstance(data, dict):
            key = ".".join(path[: at + 1])
            problem = f"{key} = {shown(data)}: must be a table"
            message = f"{file}: {problem}\n  Write:  [{'.'.join(path)}]  and the settings below it"
            raise SettingsError(message, [file], [key])
    return cast(dict[str, Any], data)


def _unreadable(file: str, why: str) -> SettingsError:
    message = f"{file} in the working directory cannot be read: {why}"
    return SettingsError(f"{message}\n  Mend it, or remove it.", [file])


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
        raise _explained(error, arguments) from error
    except RecursionError as error:
        raise SettingsError("a setting is nested too deeply") from error
    _refuse_misspelt_sources()
    return settings


def _refuse_unknown_environment(environment: Mapping[str, str]) -> None:
    """A misspelt variable would do nothing, or pin an op that there is not."""
    known = {*_variables(), *(f"{PREFIX}{name}" for name in SWITCHES)}
    for variable in sorted(environment):
        name = variable.upper()
        links = _link_variables(name)
        if name.startswith(PREFIX) and name not in known | links:
            raise SettingsError(
                f"environment variable {variable} is no setting; {nearest(name, links or known)}",
                [f"environment variable {variable}"],
            )


def _link_variables(variable: str) -> set[str]:
    """List the variables for the mesh dim that one names, if it names one."""
    table, *rest = variable.upper().split("__")
    if table != f"{PREFIX}LINKS" or len(rest) != 2 or not rest[0]:
        return set()
    return {f"{table}__{rest[0]}__{name.upper()}" for name in LinkSettings.model_fields}


def _refuse_misspelt_sources() -> None:
    """Names with a hyphen are nearly right, and what they hold would do nothing."""
    files = [path.name for path in Path().glob("*.toml")]
    told = misspelt_messages(files, _table(PYPROJECT, "tool"))
    if told:
        raise SettingsError("\n".join(told), files)


def _explained(error: ValidationError, arguments: Mapping[str, Any]) -> SettingsError:
    sources = [Source("", arguments), *_sources()]
    parts: dict[str, type[BaseModel]] = {"fallback": FallbackSettings, "links": LinkSettings}
    lines, at_fault, keys = [], [], []
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        at_fault.append(source_of(path, sources).name or "arguments")
        keys.append(".".join(path))
        if problem["type"] == "extra_forbidden":
            fields = (parts[path[0]] if len(path) > 1 else Settings).model_fields
            lines.append(unknown_message(path, fields, sources))
        else:
            lines.append(unusable_message(problem, sources))
    return SettingsError("\n".join(lines), at_fault, keys)


def _sources() -> Iterator[Source]:
    """List the sources beside arguments, the first that sets a field wins."""
    named = [name for name in os.environ if name.upper() in _variables() | _link_variables(name)]
    for variable in sorted(named, key=lambda name: (-name.count("__"), name)):
        yield Source.of_variable(variable, os.environ[variable])
    yield Source(TOML, _table(TOML))
    yield Source(PYPROJECT, _table(PYPROJECT, "tool", TABLE))


def _variables() -> set[str]:
    """List the variables that are settings, in capitals."""
    names = {*Settings.model_fields, *(f"fallback__{n}" for n in FallbackSettings.model_fields)}
    return {f"{PREFIX}{name.upper()}" for name in names}
