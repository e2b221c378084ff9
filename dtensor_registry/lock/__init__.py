"""The resolved rules as a value, as a file with one op a line, and what differs between two."""

from dtensor_registry.lock.difference import Difference, differences
from dtensor_registry.lock.file import is_lock, parse_lock, read_lock, write_lock
from dtensor_registry.lock.values import Lock, LockedOp

__all__ = [
    "Difference",
    "Lock",
    "LockedOp",
    "differences",
    "is_lock",
    "parse_lock",
    "read_lock",
    "write_lock",
]
