"""Questions about dtypes that a rule may ask.

A dtype comes as torch's own; one that does not tell its kind is taken for a floating one.
"""

from __future__ import annotations

from typing import Any


def is_bool(dtype: Any) -> bool:
    """Say whether a dtype holds truth values."""
    return str(dtype) == "torch.bool"


def is_complex(dtype: Any) -> bool:
    """Say whether numbers of a dtype are complex, and so have no order."""
    return bool(getattr(dtype, "is_complex", False))


def is_inexact(dtype: Any) -> bool:
    """Say whether a dtype holds fractions, so that an average of its numbers is not rounded.

    >>> is_inexact(None)
    True
    """
    return bool(getattr(dtype, "is_floating_point", True)) or is_complex(dtype)


def is_integer(dtype: Any) -> bool:
    """Say whether a dtype holds integers; truth values are none."""
    return not is_inexact(dtype) and not is_bool(dtype)
