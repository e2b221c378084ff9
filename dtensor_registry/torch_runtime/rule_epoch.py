"""How often rules have changed in this process: what was decided in one epoch holds only in it."""

from __future__ import annotations

_epoch = 0


def current() -> int:
    """Count of the changes of rules so far."""
    return _epoch


def advance() -> None:
    """Begin a new epoch, since rules have changed."""
    global _epoch
    _epoch += 1
