"""How a mistake in a setting is told: in which source it is, what is wrong, what to write."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOML = "dtensor_registry.toml"
PYPROJECT = "pyproject.toml"
TABLE = "dtensor_registry"
"""Name of our table among `[tool. ...]` of pyproject.toml."""

_HEADERS = ("tool", TABLE, "dtensor-registry")
"""First parts of a header that belongs into pyproject.toml, or nowhere."""

_WANTED = {
    "tuple_type": "must be a list of texts",
    "string_type": "must be a text",
    "dict_type": "must be a table",
    "model_type": "must be a table",
}
"""Pydantic's types of problems -> what a user would call what is wanted."""


@dataclass(frozen=True, slots=True)
class Place:
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
    def of_variable(cls, variable: str, prefix: str, value: str) -> Place:
        """Read a variable: two underscores lead into a table, a value may be JSON.

        >>> Place.of_variable("DTENSOR_REGISTRY_LINKS__TP__LATENCY", "DTENSOR_REGISTRY_", "1").data
        {'links': {'tp': {'latency': 1}}}
        """
        try:
            data = json.loads(value)
        except ValueError:
            data = value
        for part in reversed(variable[len(prefix) :].lower().split("__")):
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


def tell_unknown(path: Sequence[str], valid: Iterable[str], places: Sequence[Place]) -> str:
    """Tell of a name that is no setting.

    >>> tell_unknown(["ordre"], ["order"], [Place("a.toml", {"ordre": []})])
    "a.toml: ordre is no setting; did you mean 'order'?"
    """
    place = _place(path, places)
    if place.name == TOML and path[0] in _HEADERS:
        return (
            f"{TOML}: [{path[0]}] is no setting; here settings stand without a header\n"
            f"  Take out  [tool.{TABLE}]  and write  [pins]  for  [tool.{TABLE}.pins]"
        )
    return f"{_of(place)}{'.'.join(path)} is no setting; {nearest(path[-1], valid)}"


def tell_unusable(problem: Mapping[str, Any], places: Sequence[Place]) -> str:
    """Tell of a value that cannot be used.

    Args:
        problem: as pydantic lists it.
        places: all sources, the first that has a value decides it.

    >>> problem = {"loc": ("order",), "type": "tuple_type", "msg": "", "input": "torch"}
    >>> print(tell_unusable(problem, [Place("a.toml", {"order": "torch"})]))
    a.toml: order = 'torch': must be a list of texts, such as ["torch"]
    """
    path, value = problem["loc"], problem["input"]
    place = _place(path, places)
    wanted = _WANTED.get(problem["type"], problem["msg"])
    told = f"{_of(place)}{'.'.join(map(str, path))} = {value!r}: {wanted}"
    if problem["type"] != "tuple_type" or not isinstance(value, str):
        return told
    if place.variable:
        return f"{told}\n{_write(place.variable, _listed(value))}"
    return f"{told}, such as {_listed(value)}"


def tell_no_json(environment: Mapping[str, str], types: Mapping[str, str]) -> str:
    """Tell of all variables that should be JSON and are not.

    Args:
        environment: all variables, with their values.
        types: variables that are settings, in capitals -> type, as Python writes it.

    >>> print(tell_no_json({"order": "acme,*"}, {"ORDER": "tuple[str, ...]"}))
    environment variable order: 'acme,*' is no JSON; it must be a list of texts
      Write:  order='["acme", "*"]'
    """
    lines = []
    for variable, value in sorted(environment.items()):
        kind = types.get(variable.upper(), "")
        is_list = kind.startswith("tuple")
        if not is_list and not kind.startswith(("dict", "<class 'dtensor_registry")):
            continue
        try:
            json.loads(value)
        except ValueError:
            wanted = "list of texts" if is_list else "table"
            example = _listed(value) if is_list else '{"NAME": "VALUE"}'
            told = f"environment variable {variable}: {value!r} is no JSON; it must be a {wanted}"
            lines.append(f"{told}\n{_write(variable, example)}")
    return "\n".join(lines)


def tell_misspelt_places(files: Iterable[str], tables: Iterable[str]) -> list[str]:
    """Tell of files and tables that nobody reads, since their names have a hyphen.

    Args:
        files: names in the working directory.
        tables: names under `[tool]` in pyproject.toml.

    >>> tell_misspelt_places(["pyproject.toml"], ["dtensor-registry"])
    ['pyproject.toml: [tool.dtensor-registry] is not read; write [tool.dtensor_registry]']
    """
    wrong = TABLE.replace("_", "-")
    told = []
    if f"{wrong}.toml" in files:
        told.append(f"{wrong}.toml is not read; name it {TOML}")
    if wrong in tables:
        told.append(f"{PYPROJECT}: [tool.{wrong}] is not read; write [tool.{TABLE}]")
    return told


def _place(path: Sequence[Any], places: Sequence[Place]) -> Place:
    return next((place for place in places if place.holds(path)), Place("", {}))


def _of(place: Place) -> str:
    return f"{place.name}: " if place.name else ""


def _listed(value: str) -> str:
    """Write as a list what was meant as one, or as the only name in one."""
    return json.dumps([part.strip(" []'\"") for part in value.split(",")])


def _write(variable: str, value: str) -> str:
    return f"  Write:  {variable}='{value}'"
