"""A lock as text: it comes back as it was, and a broken one is an error with its line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtensor_registry.errors import LockFileError, SettingsError
from dtensor_registry.lock import FORMAT, Lock, LockedOp, parse_lock, write_lock

NAMES = st.text("abcdef_.", min_size=1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.strip())
FIELDS = TEXTS | st.sampled_from(["a|b", "a | b", "a; b", "back\\slash", "two\nlines", ""])
ROWS = st.lists(FIELDS.filter(bool), max_size=3).map(tuple)
OPS = st.builds(LockedOp, NAMES, FIELDS, FIELDS, st.booleans(), FIELDS, ROWS)
LOCKS = st.builds(
    lambda ground, ops: Lock(tuple(ground.items()), tuple(ops[op] for op in sorted(ops))),
    st.dictionaries(NAMES, FIELDS, max_size=3),
    st.lists(OPS, max_size=4).map(lambda ops: {op.op: op for op in ops}),
)

GOOD = f"""\
# {FORMAT}
torch = 2.13.0

# op | plugin | distribution | torch's own | rule | rows
acme.f.default | acme | acme-rules 1.2 | no | rows_of #1a2b |
aten.mm.default | acme | acme-rules 1.2 | yes | einsum(mk,kn->mn) | S(0) <- S(0), R; S(1) <- R, S(1)
"""


@given(LOCKS)
def test_what_is_written_is_read_as_it_was(lock: Lock) -> None:
    text = write_lock(lock)
    assert parse_lock(text, "a lock") == lock
    assert write_lock(parse_lock(text, "a lock")) == text


@given(LOCKS)
def test_every_op_has_a_line_of_its_own(lock: Lock) -> None:
    assert len(write_lock(lock).split("\n")) == len(lock.ops) + len(lock.ground) + 4


def test_order_of_lines_blank_lines_and_trailing_blanks_mean_nothing() -> None:
    first, *rest = GOOD.splitlines()
    shuffled = "\n\n".join([first, *(f"{line}  " for line in reversed(rest))])
    assert parse_lock(shuffled, "a lock") == parse_lock(GOOD, "a lock")
    assert parse_lock(GOOD, "a lock").ops[1] == LockedOp(
        "aten.mm.default",
        "acme",
        "acme-rules 1.2",
        True,
        "einsum(mk,kn->mn)",
        ("S(0) <- S(0), R", "S(1) <- R, S(1)"),
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "it is neither 'name = value' nor an op with its fields"),
        (
            "a.b.c | acme | acme 1",
            "it has 3 fields, not 6: op, plugin, distribution, torch's own, rule, rows",
        ),
        (
            "a.b.c | acme | acme 1 | perhaps | f | R <- R",
            "field 'torch's own' is 'perhaps', neither yes nor no",
        ),
        ("a.b.c | acme | acme 1 | no | \\x | R <- R", "\\x means nothing; a backslash is written"),
        ("acme.f.default | acme | acme 1 | no | f | R <- R", "acme.f.default is there twice"),
        ("torch = 2.14.1", "torch is there twice"),
        ("<<<<<<< HEAD", "it is neither 'name = value' nor an op with its fields"),
    ],
)
def test_a_broken_line_is_named_with_what_is_wrong(line: str, problem: str) -> None:
    with pytest.raises(LockFileError) as caught:
        parse_lock(f"{GOOD}{line}\n", "rules.lock")
    error = caught.value
    assert (error.file, error.line) == ("rules.lock", 7)
    assert str(error).startswith(f"rules.lock, line 7: {problem}")
    assert str(error).endswith("\n  Write it anew:  dtensor-registry lock rules.lock")
    assert isinstance(error, SettingsError)  # so that the program exits with 2


@pytest.mark.parametrize("text", ["", "torch = 2.13.0\n", "# dtensor-registry lock, format 2\n"])
def test_what_does_not_begin_as_a_lock_is_none(text: str) -> None:
    with pytest.raises(LockFileError, match=f"line 1: it does not begin with '# {FORMAT}'"):
        parse_lock(text, "rules.lock")


@given(st.text())
def test_any_text_is_a_lock_or_a_named_error(text: str) -> None:
    for candidate in (text, f"# {FORMAT}\n{text}", f"# {FORMAT}\n{text.replace('a', ' | ')}"):
        with suppress(LockFileError):
            assert isinstance(parse_lock(candidate, "rules.lock"), Lock)
