"""The ways in which a program or a call is run, and how a process enters one."""

from __future__ import annotations

import sys
import warnings
from typing import Literal, TypeAlias, get_args

Way: TypeAlias = Literal["bare", "registry", "fallback", "plugins-first"]
"""`bare` is torch alone; `registry` is `install()` with its defaults; `fallback` is `install()`
with the fallbacks on, in silence; `plugins-first` is the order in which the plugins of this
repository replace torch's rules. It may be worse than bare torch, and is run when asked for."""

PLUGINS_FIRST = ("*", "pointwise", "matrix", "structure", "corrections", "torch")

WAYS: tuple[Way, ...] = get_args(Way)


def enter(way: Way | Literal["uncorrected"]) -> None:
    """Install what a way needs, for the rest of this process.

    `uncorrected` is the registry without the plugin `corrections`: it tells what a correction
    costs.

    Raises:
        ValueError: for what is no way.
        RuntimeError: for `bare` in a process that holds what patches torch's tables and has
            something in force.
    """
    if way == "bare":
        overrides = sys.modules.get("dtensor_registry.torch_patch.override_stack")
        if overrides is not None and overrides.LOAN.layers:
            raise RuntimeError("the registry is installed in a process of bare torch")
        return
    import dtensor_registry as dr
    from dtensor_registry.settings import FallbackSettings, Settings
    from dtensor_registry.torch_runtime.pending_values import PendingValueWarning

    warnings.filterwarnings("always", category=PendingValueWarning)  # see run_program
    if way == "registry":
        dr.install()
    elif way == "uncorrected":
        dr.install(Settings(disabled=("corrections",)))
    elif way == "fallback":
        dr.install(Settings(fallback=FallbackSettings(mode="silent")))
    elif way == "plugins-first":
        dr.install(Settings(order=PLUGINS_FIRST))
    else:
        raise ValueError(f"{way!r} is no way to run: {', '.join(WAYS)}")
