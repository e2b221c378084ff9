"""A lock as text: read as text and nothing else, one op a line, so that a diff reads well."""

from __future__ import annotations

from collections.abc import Iterator

from dtensor_registry.errors import LockFileError
from dtensor_registry.lock.values import Lock, LockedOp

_BEGINNING = "dtensor-registry lock, format "
FORMAT = f"{_BEGINNING}1"
"""How a lock begins."""

COLUMNS = ("op", "plugin", "distribution", "torch's own", "rule", "rows")
_BETWEEN = " | "
_ROWS = "; "
_ESCAPES = {"\\": "\\\\", "|": "\\p", ";": "\\s", "\n": "\\n", "\r": "\\r"}
_MEANINGS = {escape[1]: plain for plain, escape in _ESCAPES.items()}


def write_lock(lock: Lock) -> str:
    """Write a lock as text.

    >>> op = LockedOp("aten.mm.default", "acme", "acme-rules 1.2", True, "f", ("S(0) <- S(0), R",))
    >>> print(write_lock(Lock((("torch", "2.13.0"),), (op,))))
    # dtensor-registry lock, format 1
    torch = 2.13.0
    <BLANKLINE>
    # op | plugin | distribution | torch's own | rule | rows
    aten.mm.default | acme | acme-rules 1.2 | yes | f | S(0) <- S(0), R
    <BLANKLINE>
    """
    ground = [f"{name} = {_escape(value)}".rstrip(" ") for name, value in lock.ground]
    ops = [_line(op) for op in lock.ops]
    lines = [f"# {FORMAT}", *ground, "", f"# {_BETWEEN.join(COLUMNS)}", *ops]
    return "\n".join(lines) + "\n"


def is_lock(data: bytes) -> bool:
    """Say whether a file is a lock, of whatever format, or empty: one that may be written anew.

    >>> is_lock(b"# dtensor-registry lock, format 0"), is_lock(b""), is_lock(b"import torch")
    (True, True, False)
    """
    return not data.strip() or data.startswith(f"# {_BEGINNING}".encode())


def parse_lock(text: str, name: str) -> Lock:
    """Read a lock.

    Args:
        text: as `write_lock` writes it; lines may be in any order, empty ones and comments
            are passed over.
        name: what to call it in an error.

    Raises:
        LockFileError: with the line at fault.

    >>> lock = Lock((), (LockedOp("acme.f.default", "acme", "acme 1", False, "a|b", ("R <- R",)),))
    >>> parse_lock(write_lock(lock), "a lock") == lock
    True
    """
    lines = text.split("\n")
    if lines[0].rstrip(" ") != f"# {FORMAT}":
        raise LockFileError(name, 1, f"it does not begin with '# {FORMAT}', so it is no lock")
    ground: dict[str, str] = {}
    ops: dict[str, LockedOp] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip(" ") or line.startswith("#"):
            continue
        try:
            _read_line(line.rstrip(" "), ground, ops)
        except ValueError as error:
            raise LockFileError(name, number, str(error)) from error
    return Lock(tuple(ground.items()), tuple(ops[op] for op in sorted(ops)))


def _line(op: LockedOp) -> str:
    fields = (op.op, op.plugin, op.distribution, "yes" if op.in_torch else "no", op.rule)
    rows = _ROWS.join(map(_escape, op.rows))
    return _BETWEEN.join((*map(_escape, fields), rows)).rstrip(" ")


def _read_line(line: str, ground: dict[str, str], ops: dict[str, LockedOp]) -> None:
    """Read one line into what it belongs to.

    Raises:
        ValueError: saying what is wrong with it.
    """
    # Trailing blanks are left out, also the one of a separator that nothing follows.
    padded = line.endswith((" |", " ="))
    fields = f"{line} ".split(_BETWEEN) if padded else line.split(_BETWEEN)
    if len(fields) == 1:
        key, equals, value = fields[0].partition(" = ")
        if not equals:
            raise ValueError("it is neither 'name = value' nor an op with its fields")
        if key in ground:
            raise ValueError(f"{key} is there twice")
        ground[key] = _unescape(value[:-1] if padded and value else value)
        return
    if len(fields) != len(COLUMNS):
        raise ValueError(f"it has {len(fields)} fields, not {len(COLUMNS)}: {', '.join(COLUMNS)}")
    op, plugin, distribution, in_torch, rule = map(_unescape, fields[:-1])
    if in_torch not in ("yes", "no"):
        raise ValueError(f"field 'torch's own' is {in_torch!r}, neither yes nor no")
    if op in ops:
        raise ValueError(f"{op} is there twice")
    rows = tuple(map(_unescape, fields[-1].split(_ROWS))) if fields[-1].strip(" ") else ()
    ops[op] = LockedOp(op, plugin, distribution, in_torch == "yes", rule, rows)


def _escape(value: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in value)


def _unescape(value: str) -> str:
    """Read a field.

    Raises:
        ValueError: for an escape that means nothing.
    """
    return "".join(_characters(value))


def _characters(value: str) -> Iterator[str]:
    characters = iter(value)
    for character in characters:
        if character != "\\":
            yield character
            continue
        escape = next(characters, "")
        if escape not in _MEANINGS or not escape:
            raise ValueError(f"\\{escape} means nothing; a backslash is written \\\\")
        yield _MEANINGS[escape]
