"""The two hooks through which plugins speak to the host.

A plugin is a module (or any object) that an installed distribution names under the
entry-point group `dtensor_registry`. Hooks return data and have no side effects: the
host collects from everybody first, then decides who wins, then installs.
"""

from collections.abc import Iterable

import pluggy

from dtensor_registry.rules import FallbackStrategy, SingleDimStrategy

PROJECT = "dtensor_registry"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of a hook."""


@hookspec
def provide_single_dim_strategy() -> Iterable[SingleDimStrategy]:
    """Contribute sharding rules on one mesh dim.

    A complete plugin, module `acme_plugin`, in a distribution whose pyproject has
    `[project.entry-points.dtensor_registry]` with `acme = "acme_plugin"`:

        from dtensor_registry import ShardingPlaceholder, SingleDimStrategy, hookimpl

        def topk_rows(op, args, kwargs):
            rank = len(args[0].shape)
            # values, indices <- input: any dim but the last, along which we select.
            return [[ShardingPlaceholder(d)] * 3 for d in range(rank - 1)]

        @hookimpl
        def provide_single_dim_strategy():
            return [SingleDimStrategy("acme.topk_last.default", topk_rows)]

    Returns:
        Strategies, in any order; what decides between plugins is the setting `order`.
    """
    raise NotImplementedError


@hookspec
def provide_fallback() -> Iterable[FallbackStrategy]:
    """Contribute fallbacks for ops that nobody has a rule for.

    A complete plugin, module `acme_fallback`, declared as above:

        from dtensor_registry import FallbackStrategy, hookimpl

        @hookimpl
        def provide_fallback():
            # No rows: only the all-Replicate row, which is implied, remains.
            return [FallbackStrategy("gather-all", lambda op, args, kwargs: [])]

    Returns:
        Fallbacks; the setting `fallback.order` says who is asked first.
    """
    raise NotImplementedError
