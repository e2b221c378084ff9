"""A lock as a file: it comes back as it was, and a broken one is an error with its place."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtensor_registry.errors import LockFileError, SettingsError
from dtensor_registry.lock import Lock, LockedOp, parse_lock, write_lock
from dtensor_registry.lock.values import FORMAT

NAMES = st.text("abcdef_.", min_size=1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
OPS = st.builds(LockedOp, NAMES, TEXTS, TEXTS, st.booleans(), TEXTS, st.lists(TEXTS).map(tuple))
LOCKS = st.builds(
    lambda ground, ops: Lock(ground, tuple(ops[op] for op in sorted(ops))),
    st.dictionaries(NAMES, TEXTS, max_size=3),
    st.lists(OPS, max_size=4).map(lambda ops: {op.op: op for op in ops}),
)

ROWS = ("S(0) <- S(0), R", "S(1) <- R, S(1)")
OP = LockedOp("aten.mm.default", "acme", "acme-rules 1.2", True, "einsum(mk,kn->mn)", ROWS)


def written(**changes: Any) -> bytes:
    """Write a lock as JSON that `write_lock` would not write."""
    values = {"format": FORMAT, "ground": {"torch": "2.13.0"}, "ops": [asdict(OP)], **changes}
    return json.dumps(values).encode()


@given(LOCKS)
def test_what_is_written_is_read_as_it_was(lock: Lock) -> None:
    text = write_lock(lock)
    assert parse_lock(text.encode(), "a lock") == lock


@given(LOCKS)
def test_every_op_has_a_line_of_its_own(lock: Lock) -> None:
    lines = write_lock(lock).split("\n")
    for op in lock.ops:
        line = next(line for line in lines if line.startswith(f'{{"op": {json.dumps(op.op)},'))
        assert json.loads(line.rstrip(","))["rule"] == op.rule


def test_layout_of_the_file_means_nothing() -> None:
    assert parse_lock(written(), "a lock") == Lock({"torch": "2.13.0"}, (OP,))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{\n<<<<<<< HEAD\n", "Invalid JSON: key must be a string at line 2 column 1"),
        (b"\xff\xfe", "Invalid JSON: "),
        (b"", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        (b"# dtensor-registry lock, format 1\ntorch = 2.13.0\n", "Invalid JSON: expected value"),
        (written(format="dtensor-registry lock, format 3"), f"format: Input should be '{FORMAT}'"),
        (written(ops=[{"op": "a.b.c"}]), "ops.0.plugin: Field required"),
        (written(ops=[asdict(OP) | {"in_torch": "perhaps"}]), "ops.0.in_torch: "),
        (written(ops=[asdict(OP)] * 2), "aten.mm.default is there twice"),
        (b'{"ground": {}, "ops": []}', f"its first lines do not have '{FORMAT}'"),
    ],
)
def test_a_broken_lock_is_an_error_that_says_where(data: bytes, problem: str) -> None:
    with pytest.raises(LockFileError) as caught:
        parse_lock(data, "rules.lock")
    error = caught.value
    assert error.file == "rules.lock"
    assert str(error).startswith(f"rules.lock: {problem}")
    assert str(error).endswith("\n  Write it anew:  dtensor-registry lock rules.lock")
    assert isinstance(error, SettingsError)  # so that the program exits with 2
