"""Strategies for the length of a `with` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dtensor_registry._torch.catalog import Op, TorchCatalog
from dtensor_registry._torch.entries import full_mesh_entry
from dtensor_registry._torch.fallback import FallbackPolicy
from dtensor_registry._torch.loan import LOAN, Layer
from dtensor_registry._torch.replicate import replicate_op_strategy
from dtensor_registry.discovery import discover
from dtensor_registry.resolution import resolve
from dtensor_registry.settings import read_settings


@dataclass(frozen=True, slots=True)
class OpStrategyPack:
    """One op and the function that shards it on the whole mesh.

    Attributes:
        op: the overload.
        strategy_function: torch's own kind, `(op_schema) -> OpStrategy`.
        schema_info: what is in torch's cache key; None: every non-tensor argument.
    """

    op: Op
    strategy_function: Callable[[Any], Any] = replicate_op_strategy
    schema_info: Any = None


@contextmanager
def implicit_strategy_context(packs: Sequence[OpStrategyPack] | None = None) -> Iterator[None]:
    """Give ops strategies for the length of the block.

    Args:
        packs: ops and their strategy functions; only these ops are affected. None: every op
            that has no rule falls back, as with setting `fallback.mode = "warn"`, to the
            fallbacks of the installed plugins.

    Raises:
        InstallError: when entered or left inside a dispatch of this thread.
    """
    layer = Layer("an implicit strategy context", height=2)
    if packs is None:
        layer.missing = policy = _every_fallback()
        layer.before_decomposition = policy.settings.before_decomposition
    else:
        layer.entries = {
            pack.op: full_mesh_entry(pack.op, pack.strategy_function, pack.schema_info)
            for pack in packs
        }
    LOAN.add(layer)
    try:
        yield
    finally:
        LOAN.remove(layer)


def _every_fallback() -> FallbackPolicy:
    settings = read_settings()
    chosen = settings.fallback
    if chosen.mode == "off":
        chosen = chosen.model_copy(update={"mode": "warn"})
    return FallbackPolicy(resolve(discover(settings), settings, TorchCatalog()).fallbacks, chosen)
