"""A lock as a file: JSON with one op a line, so that a diff of two commits reads well."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dtensor_registry.errors import LockFileError
from dtensor_registry.lock.values import Lock

_MARK = b"dtensor-registry lock, format "
"""What the first line or two of a lock have, of whatever format."""


def write_lock(lock: Lock) -> str:
    """Write a lock as JSON.

    >>> from dtensor_registry.lock.values import LockedOp
    >>> op = LockedOp("aten.mm.default", "acme", "acme 1", True, "f", ("S(0) <- S(0), R",))
    >>> print(write_lock(Lock({"torch": "2.13.0"}, (op,))), end="")  # doctest: +ELLIPSIS
    {
    "format": "dtensor-registry lock, format 2",
    "ground": {
     "torch": "2.13.0"
    },
    "ops": [
    {"op": "aten.mm.default", "plugin": "acme", ..., "rows": ["S(0) <- S(0), R"]}
    ]
    }
    """
    values = {"format": lock.format, "ground": lock.ground}
    above = [f"{json.dumps(name)}: {json.dumps(values[name], indent=1)}" for name in values]
    ops = ",\n".join(json.dumps(asdict(op)) for op in lock.ops)
    return "{\n" + ",\n".join([*above, f'"ops": [\n{ops}\n]']) + "\n}\n"


def read_lock(file: str | Path) -> Lock:
    """Read a lock file; nothing in it is executed.

    Raises:
        LockFileError: if it cannot be read, or is no lock.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise LockFileError(str(file), f"it cannot be read: {error.strerror}") from error
    return parse_lock(data, str(file))


def parse_lock(data: bytes, name: str) -> Lock:
    """Read a lock.

    Args:
        data: as `write_lock` writes it; ops may be in any order.
        name: what to call it in an error.

    Raises:
        LockFileError: with the line, or the name of the value, at fault.

    >>> lock = Lock({"torch": "2.13.0"}, ())
    >>> parse_lock(write_lock(lock).encode(), "a lock") == lock
    True
    """
    try:
        lock = TypeAdapter(Lock).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        raise LockFileError(name, f"{place}: {problem}" if place else problem) from error
    if not is_lock(data):
        raise LockFileError(name, f"its first lines do not have {lock.format!r}")
    return lock


def is_lock(data: bytes) -> bool:
    """Say whether a file is a lock, of whatever format, or empty: one that may be written anew.

    >>> is_lock(b"# dtensor-registry lock, format 1"), is_lock(b""), is_lock(b"import torch")
    (True, True, False)
    """
    return not data.strip() or _MARK in b"".join(data.splitlines()[:2])
