"""Threads whose cached decisions no change of rules can reach, counted so that they can be told.

torch keeps decisions in a C++ cache per thread. Those made while the host is installed notice
changes; those made before belong to torch and stay until their own thread clears them.
"""

from __future__ import annotations

import ctypes
import warnings

_CACHE = "__DTensor_fastpath_thread_cache_cleanup"
"""Key in a thread state's dict under which torch's C++ keeps the thread's cache."""

REMEDY = "torch.distributed.tensor.debug._clear_sharding_prop_cache()"


class StaleThreadWarning(UserWarning):
    """Other threads have decisions in their caches that rules do not reach."""


def caching_threads() -> int | None:
    """Count the other threads of this process that have dispatched a DTensor op.

    Returns:
        The count, or None where this Python does not tell.
    """
    api = ctypes.pythonapi
    try:
        interpreter, first, following, own, dict_of = (
            api.PyInterpreterState_Get,
            api.PyInterpreterState_ThreadHead,
            api.PyThreadState_Next,
            api.PyThreadState_Get,
            api._PyThreadState_GetDict,
        )
    except AttributeError:
        return None
    for function in (interpreter, first, following, own):
        function.restype = ctypes.c_void_p
    for function in (first, following, dict_of):
        function.argtypes = [ctypes.c_void_p]
    dict_of.restype = ctypes.c_void_p
    # The interpreter lock is held throughout, so no thread comes or goes meanwhile.
    this, state, count = own(), first(interpreter()), 0
    while state:
        address = dict_of(state) if state != this else None
        if address and _CACHE in ctypes.cast(address, ctypes.py_object).value:
            count += 1
        state = following(state)
    return count


def warn_stale_threads() -> None:
    """Say that threads dispatched DTensor ops before the first installation of this process."""
    count = caching_threads()
    if count:
        warnings.warn(
            f"{count} other thread(s) have run DTensor ops before dtensor_registry was installed"
            " in this process; what they decided stays in their caches, whatever rules say.\n"
            "  Install before other threads use DTensor, or let each of them call"
            f" {REMEDY} once now.",
            StaleThreadWarning,
            stacklevel=3,
        )
