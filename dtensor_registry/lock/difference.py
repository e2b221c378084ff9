"""What differs between two locks, in the words of those who must decide what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtensor_registry.lock.values import UNASKED, Lock, LockedOp

PYTHON = "python"
"""Hashes of functions can be compared between equal versions of Python only."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same.

    Attributes:
        about: an op, or the name of a version or setting.
        change: what kind of thing changed, for example `owner` or `rows lost`.
        before: as it was; empty for what is new.
        after: as it is now; empty for what is gone.
    """

    about: str
    change: str
    before: str
    after: str

    def __str__(self) -> str:
        if self.before and self.after:
            return f"{self.about}: {self.change}: {self.before} -> {self.after}"
        told = self.before or self.after
        return f"{self.about}: {self.change}{f': {told}' if told else ''}"


def differences(before: Lock, after: Lock) -> tuple[Difference, ...]:
    """List what differs, versions and settings first, then op by op.

    An op that was pending in one of the two, because its library was not imported, is compared
    by its owner and rule alone. Another Python is no difference by itself.

    >>> mine = LockedOp("aten.mm.default", "acme", "acme 1", False, "f", ("S(0) <- S(0), R",))
    >>> torchs = LockedOp("aten.mm.default", "acme", "acme 1", True, "f", ())
    >>> for found in differences(Lock({}, (mine,)), Lock({}, (torchs,))): print(found)
    aten.mm.default: torch now has its own rule for this op
    aten.mm.default: rows lost: S(0) <- S(0), R
    """
    codes = before.ground.get(PYTHON) == after.ground.get(PYTHON)
    found = list(_ground_changes(before, after, codes))
    ops = {op.op: op for op in before.ops}, {op.op: op for op in after.ops}
    for op in sorted({*ops[0], *ops[1]}):
        old, new = ops[0].get(op), ops[1].get(op)
        if old is None and new is not None:
            old = _stand_in(new, before.ops)
            found += (
                _changes(old, new, codes) if old else [Difference(op, "ruled anew", "", new.owner)]
            )
        elif old is not None and new is not None:
            found += _changes(old, new, codes)
        elif old is not None and _stand_in(old, after.ops) is None:
            found.append(Difference(op, "no plugin rules it any more", old.owner, ""))
    return tuple(found)


def _ground_changes(before: Lock, after: Lock, codes: bool) -> Iterator[Difference]:
    old, new = before.ground, after.ground
    for name in dict.fromkeys((*old, *new)):
        if name == PYTHON:
            continue
        if name not in new:
            yield Difference(name, "gone", old[name], "")
        elif name not in old:
            yield Difference(name, "new", "", new[name])
        elif _text(old[name], codes) != _text(new[name], codes):
            yield Difference(name, "changed", old[name], new[name])


def _changes(old: LockedOp, new: LockedOp, codes: bool) -> Iterator[Difference]:
    op = new.op
    if old.plugin != new.plugin:
        yield Difference(op, "owner", old.owner, new.owner)
    elif old.distribution != new.distribution:
        yield Difference(op, "version", old.distribution, new.distribution)
    if _text(old.rule, codes) != _text(new.rule, codes):
        yield Difference(op, "rule", old.rule, new.rule)
    if old.is_pending or new.is_pending:
        return
    if not old.in_torch and new.in_torch:
        yield Difference(op, "torch now has its own rule for this op", "", "")
    elif old.in_torch and not new.in_torch:
        yield Difference(op, "torch has no rule of its own for this op any more", "", "")
    if UNASKED not in (*old.rows, *new.rows):
        yield from _row_changes(op, "rows lost", old.rows, new.rows, lost=True)
        yield from _row_changes(op, "rows gained", new.rows, old.rows, lost=False)
        if old.rows != new.rows and {*old.rows} == {*new.rows}:  # the first of equal rows wins
            yield Difference(op, "rows in another order", *map("; ".join, (old.rows, new.rows)))


def _row_changes(
    op: str, change: str, here: Sequence[str], there: Sequence[str], lost: bool
) -> Iterator[Difference]:
    rows = "; ".join(row for row in here if row not in there)
    if rows:
        yield Difference(op, change, rows if lost else "", "" if lost else rows)


def _text(rule: str, codes: bool) -> str:
    """Leave the hash of a function's code out, where that cannot be compared."""
    return rule if codes else rule.partition(" #")[0]


def _stand_in(op: LockedOp, others: Sequence[LockedOp]) -> LockedOp | None:
    """Find an op in the other lock, where it has another name: pending there, or pending here."""
    for other in others:
        is_part = op.op.startswith(f"{other.op}.") or other.op.startswith(f"{op.op}.")
        if is_part and other.owner == op.owner and (other.is_pending or op.is_pending):
            return other
    return None
