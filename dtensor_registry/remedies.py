"""What messages tell the user to type. Each text can be pasted into a shell as it is."""

from __future__ import annotations

import json
import shlex
from typing import Any


def set_variable(name: str, value: Any) -> str:
    """Write an environment variable that holds a setting as JSON.

    >>> print(set_variable("disabled", ["acme"]))
    DTENSOR_REGISTRY_DISABLED='["acme"]'
    """
    return f"DTENSOR_REGISTRY_{name.upper()}={shlex.quote(json.dumps(value))}"


def switch_off(plugin: str, op: str) -> str:
    """Say how to take one op from a plugin; what the process registered itself it can undo.

    >>> switch_off("local", "aten.mm.default")
    'undo() the registration'
    """
    if plugin == "local":
        return "undo() the registration"
    return set_variable("disabled", [f"{plugin}:{op}"])


def see_why(op: str, explain: str) -> str:
    """Give the command that explains a call, or at least who has rules for its op.

    >>> see_why("aten.mm.default", "")
    '  See why:  dtensor-registry explain aten.mm.default'
    """
    return f"  See why:  {explain or f'dtensor-registry explain {shlex.quote(op)}'}"
