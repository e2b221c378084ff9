"""Messages about mistakes in settings: in which source one is, what is wrong, what to write."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PREFIX = "DTENSOR_REGISTRY_"
"""What the names of environment variables begin with."""
TOML = "dtensor_registry.toml"
PYPROJECT = "pyproject.toml"
TABLE = "dtensor_registry"
"""Name of our table among `[tool. ...]` of pyproject.toml."""

_HEADERS = ("tool", TABLE, "dtensor-registry")
"""First parts of a header that belongs into pyproject.toml, or nowhere."""

LONGEST = 200
"""Characters that a message shows of a value."""

EXAMPLES = {
    "order": '["*", "torch"]',
    "pins": '{"aten.mm.default": "torch"}',
    "links": '{"tp": {"bandwidth": 300}}',
    "fallback": '{"mode": "warn"}',
    "fallback.ops": '{"batch": ["aten.bmm.default"]}',
}
"""What to write for a list or a table, where `[]` or `{}` may not do."""

_WANTED = {
    "tuple_type": "must be a list of texts",
    "string_type": "must be a text",
    "dict_type": "must be a table",
    "model_type": "must be a table",
}
"""Pydantic's types of problems -> what a user would call what is wanted."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source of settings.

    Attributes:
        name: as the user knows it; empty for arguments, which the user sees before them.
        data: what it says.
        variable: the environment variable, if it is one.
    """

    name: str
    data: Mapping[str, Any]
    variable: str = ""

    @classmethod
    def of_variable(cls, variable: str, value: str) -> Source:
        """Read a variable: two underscores lead into a table, a list or table is JSON.

        >>> Source.of_variable("DTENSOR_REGISTRY_LINKS__TP__LATENCY", "1").data
        {'links': {'tp': {'latency': '1'}}}
        """
        data: Any = value
        if value.strip()[:1] in ("[", "{") or value.strip() == "null":
            with suppress(ValueError, RecursionError):  # no JSON: a text where none is wanted
                data = json.loads(value)
        for part in reversed(_key(variable).split(".")):
            data = {part: data}
        return cls(f"environment variable {variable}", data, variable)

    def holds(self, path: Sequence[Any]) -> bool:
        """Say whether it has the value at a path, or one that stands where a table should."""
        data: Any = self.data
        for part in path:
            if not isinstance(data, Mapping):
                return True
            if part not in data:
                return False
            data = data[part]
        return True


def nearest(name: str, valid: Iterable[str]) -> str:
    """Say which valid name an unknown one may stand for, or list them all.

    >>> nearest("ordre", ["order", "pins"])
    "did you mean 'order'?"
    """
    choices = sorted(valid)
    close = difflib.get_close_matches(name, choices, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(choices) or 'none'}"


def unknown_message(path: Sequence[str], valid: Iterable[str], sources: Sequence[Source]) -> str:
    """Tell of a name that is no setting.

    >>> unknown_message(["ordre"], ["order"], [Source("a.toml", {"ordre": []})])
    "a.toml: ordre is no setting; did you mean 'order'?"
    """
    source = source_of(path, sources)
    if source.name == TOML and path[0] in _HEADERS:
        return (
            f"{TOML}: [{path[0]}] is no setting; here settings stand without a header\n"
            f"  Take out  [tool.{TABLE}]  and write  [pins]  for  [tool.{TABLE}.pins]"
        )
    return f"{_of(source)}{'.'.join(path)} is no setting; {nearest(path[-1], valid)}"


def unusable_message(problem: Mapping[str, Any], sources: Sequence[Source]) -> str:
    """Tell of a value that cannot be used.

    Args:
        problem: as pydantic lists it.
        sources: all sources, the first that has a value decides it.

    >>> problem = {"loc": ("order",), "type": "tuple_type", "msg": "", "input": "torch"}
    >>> print(unusable_message(problem, [Source("a.toml", {"order": "torch"})]))
    a.toml: order = 'torch': must be a list of texts, such as ["torch"]
    """
    path, value = problem["loc"], problem["input"]
    source = source_of(path, sources)
    wanted = _WANTED.get(problem["type"], problem["msg"])
    key = ".".join(map(str, path))
    message = f"{_of(source)}{key} = {shown(value)}: {wanted.removeprefix('Value error, ')}"
    listed = _listed(value) if problem["type"] == "tuple_type" else ""
    if source.variable and problem["type"] in _WANTED and key == _key(source.variable):
        return f"{message}\n{_remedy(source.variable, listed)}"
    return f"{message}, such as {listed}" if listed else message


def misspelt_messages(files: Iterable[str], tables: Iterable[str]) -> list[str]:
    """Tell of files and tables that nobody reads, since their names have a hyphen.

    Args:
        files: names in the working directory.
        tables: names under `[tool]` in pyproject.toml.

    >>> misspelt_messages(["pyproject.toml"], ["dtensor-registry"])
    ['pyproject.toml: [tool.dtensor-registry] is not read; write [tool.dtensor_registry]']
    """
    wrong = TABLE.replace("_", "-")
    messages = []
    if f"{wrong}.toml" in files:
        messages.append(f"{wrong}.toml is not read; name it {TOML}")
    if wrong in tables:
        messages.append(f"{PYPROJECT}: [tool.{wrong}] is not read; write [tool.{TABLE}]")
    return messages


def source_of(path: Sequence[Any], sources: Sequence[Source]) -> Source:
    """Find the source that decides a setting: the first that has a value for it."""
    return next((source for source in sources if source.holds(path)), Source("", {}))


def shown(value: Any) -> str:
    """Show a value that a user gave, whatever it is, in at most some 200 characters.

    >>> shown("torch")
    "'torch'"
    """
    try:
        text = repr(value)
    except Exception:  # nested too deeply, or an object whose own code raises
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def _of(source: Source) -> str:
    return f"{source.name}: " if source.name else ""


def _listed(value: object) -> str:
    """Write as a list what was meant as one, or as the only name in one; empty if there is none."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return ""
    names = [part.strip(" []{}'\"") for part in value.split(",")]
    return json.dumps(list(dict.fromkeys(filter(None, names)))) if any(names) else ""


def _key(variable: str) -> str:
    """Give the setting that a variable holds.

    >>> _key("DTENSOR_REGISTRY_FALLBACK__ORDER")
    'fallback.order'
    """
    return variable.lower().removeprefix(PREFIX.lower()).replace("__", ".")


def _remedy(variable: str, listed: str) -> str:
    """Say what to write into a variable, as near as can be to what was there."""
    example = listed or EXAMPLES.get(_key(variable), "[]")
    message = f"  Write:  {variable}={shlex.quote(example)}"
    return message if listed else f"{message}, or unset it"
