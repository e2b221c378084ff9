"""One error of every class, made from the types of its constructor's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import dtensor_registry
from dtensor_registry.errors import PluginError, RegistryError

OP = "acme.mm.default"
PLUGIN = "it's:a"
"""Legal as the name of an entry point; it means something to a shell and in `disabled`."""

BY_NAME: dict[str, Any] = {
    "op": OP,
    "plugin": PLUGIN,
    "plugins": [PLUGIN, "other"],
    "order": [PLUGIN, "*", "torch"],
    "requirement": "acme-rules>=1.2",
    "command": "Install it:  pip install 'acme-rules>=1.2'",
    "file": "my rules.lock",
    "extra": "testing",
    "package": "acme-rules",
    "explain": "",
    "advice": "",
    "reasons": [("replicate", "it draws random numbers")],
    "failures": [PluginError(PLUGIN, "acme-rules 1.0", "it raised")],
    "cause": ImportError("No module named 'expecttest'", name="expecttest"),
    "position": 1,
    "shape": (2, 3),
}
BY_TYPE: dict[str, Any] = {
    "str": "a text",
    "str | None": "a text",
    "int": 2,
    "int | None": 2,
    "float": 1.5,
    "bool": True,
    "Sequence[str]": ["one", "two"],
    "Iterable[str]": ["one", "two"],
}
TOLD = (OP, PLUGIN, "acme-rules 1.0", "(8, 4)@(S(0))", "4", ["one reason"])


def error_classes() -> list[type[RegistryError]]:
    """Find every class of error, in whatever module of the host it is."""
    for module in walk_packages(dtensor_registry.__path__, "dtensor_registry."):
        if not module.name.rpartition(".")[2].startswith("__main__"):
            import_module(module.name)
    ours = (kind for kind in _below(RegistryError) if kind.__module__.startswith("dtensor_reg"))
    return sorted(set(ours), key=lambda kind: kind.__qualname__)


def _below(kind: type[RegistryError]) -> Iterator[type[RegistryError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def sample(kind: type[RegistryError]) -> RegistryError:
    """Make an error of a class.

    Raises:
        KeyError: naming the parameter that this module has no sample for.
    """
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments += TOLD
        else:
            value = BY_NAME[name] if name in BY_NAME else BY_TYPE[str(parameter.annotation)]
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = value
            else:
                arguments.append(value)
    if kind.__name__ == "FallbackRefusedError":
        arguments[1] = BY_NAME["reasons"]
    elif kind.__name__ == "NoValidRowError":
        arguments[5] = ["one reason"]
    return kind(*arguments, **named)
