"""Names of ops that will never exist: those in torch's own namespaces exist from the start."""

from __future__ import annotations

from collections.abc import Iterator

from dtensor_registry.discovery import LOCAL
from dtensor_registry.resolution import Resolution
from dtensor_registry.settings import nearest
from dtensor_registry.torch_runtime.ops import overloads

NAMESPACES = ("aten", "prims")
"""Those whose ops torch defines when it is imported."""


def unknown_ops(resolution: Resolution) -> Iterator[str]:
    """Say which rules wait for an op that torch does not have, and which may be meant."""
    for verdict in resolution.verdicts.values():
        namespace = verdict.op.partition(".")[0]
        if verdict.pending and verdict.winner is not None and namespace in NAMESPACES:
            origin = verdict.winner.origin
            plugin = "" if origin.plugin == LOCAL else f"plugin {origin.plugin!r} of "
            yield (
                f"{plugin}{origin} has a rule"
                f" for {verdict.op}, which torch does not have;"
                f" {nearest(verdict.op, _known(verdict.op))}"
            )


def _known(like: str) -> set[str]:
    """List the ops of a namespace that begin alike, in the form of `like`."""
    namespace, packet = like.split(".")[:2]
    return {
        str(op if like.count(".") == 2 else op.overloadpacket)
        for op in overloads(namespace)
        if op.overloadpacket.__name__.startswith(packet[:1])
    }
