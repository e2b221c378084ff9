"""The fallbacks, by name."""

from typing import Any

from dtensor_registry import FallbackStrategy


def all_replicate(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Offer no row of its own: only all-Replicate, which is implied, remains.

    Right for every op whose result depends on nothing but its inputs: each rank holds all of
    them and computes the whole result. What else an op may do (draw random numbers, write to
    an argument, return a view) is the host's to refuse.

    >>> all_replicate("acme.op.default", (), {})
    []
    """
    return []


FALLBACKS = (FallbackStrategy("replicate", all_replicate),)
