"""Questions about sizes that a rule may ask; a symbolic size is never compared.

torch turns the sizes 0 and 1 into plain ints, so a symbolic size is never 1. To compare one
would add a guard to a compiled graph, or fail if the size is known only at run time.
"""

from __future__ import annotations


def is_one(size: object) -> bool:
    """Say whether a dim has size 1, so that it may be broadcast."""
    return isinstance(size, int) and size == 1


def differ(size: object, other: object) -> bool:
    """Say whether two sizes are known and cannot be one, broadcasting aside.

    >>> differ(3, 4), differ(3, 1)
    (True, False)
    """
    known = isinstance(size, int) and isinstance(other, int)
    return known and size != other and 1 not in (size, other)
