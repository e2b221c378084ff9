"""Strategies for the length of a `with` block."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dtensor_registry.discovery import Fallback, discover
from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.fingerprint import of_fallbacks, of_rules
from dtensor_registry.installation.installer import in_force
from dtensor_registry.resolution import resolve
from dtensor_registry.rules.strategy import op_name
from dtensor_registry.settings import Settings, read_settings
from dtensor_registry.torch_patch.catalog import Op, TorchCatalog
from dtensor_registry.torch_patch.entries import full_mesh_entry
from dtensor_registry.torch_patch.fallback import FallbackPolicy
from dtensor_registry.torch_patch.import_guard import watch
from dtensor_registry.torch_patch.layers import Layer
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.replicate import replicate_op_strategy


@dataclass(frozen=True, slots=True)
class OpStrategyPack:
    """One op and the function that shards it on the whole mesh.

    Attributes:
        op: an overload, a packet, a custom op, or a name.
        strategy_function: torch's own kind, `(op_schema) -> OpStrategy`.
        schema_info: what is in torch's cache key; None: every non-tensor argument.
    """

    op: Any
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
        InvalidContributionError: for what is no pack, or for a pack whose op does not exist.
    """
    _check(packs)
    layer = Layer("an implicit strategy context", height=2)
    if packs is None:
        layer.missing = policy = _every_fallback()
        layer.before_decomposition = policy.settings.fallback.before_decomposition
        layer.parts = of_fallbacks(policy.settings, policy.fallbacks).parts
    else:
        layer.entries = {
            op: full_mesh_entry(op, pack.strategy_function, pack.schema_info)
            for pack in packs
            for op in _ops(pack.op)
        }
        told = {str(op): (entry.rule, entry.schema_info) for op, entry in layer.entries.items()}
        layer.parts = of_rules(told, "a context of this process").parts
    LOAN.add(layer)
    try:
        yield
    finally:
        LOAN.remove(layer)


def _check(packs: Any) -> None:
    """Refuse what is no list of packs.

    Raises:
        InvalidContributionError: for that.
    """
    is_list = packs is None or (isinstance(packs, Sequence) and not isinstance(packs, str))
    for pack in (packs or ()) if is_list else (packs,):
        if not is_list or not isinstance(pack, OpStrategyPack):
            raise InvalidContributionError(
                f"implicit_strategy_context() takes a list of OpStrategyPack, not {pack!r}\n"
                "  Write:  implicit_strategy_context([OpStrategyPack(op)])"
            )


def _every_fallback() -> FallbackPolicy:
    """Take the fallbacks of the installation in force, or of the plugins that are there."""
    held = in_force()
    settings = read_settings() if held is None else held.settings
    if settings.fallback.mode == "off":
        chosen = settings.fallback.model_copy(update={"mode": "warn"})
        settings = settings.model_copy(update={"fallback": chosen})
    if held is not None:
        return FallbackPolicy(held.resolution.fallbacks, settings)
    # What another thread installs meanwhile is no plugin's doing.
    with LOAN.lock:
        fallbacks = _fallbacks_of(settings.model_dump_json(), tuple(sys.path))
    return FallbackPolicy(fallbacks, settings)


@lru_cache(maxsize=1)
def _fallbacks_of(settings_json: str, path: tuple[str, ...]) -> tuple[Fallback, ...]:
    """Find the fallbacks of the plugins on a path; a context in a loop finds them once."""
    settings = Settings.model_validate_json(settings_json)
    return resolve(discover(settings, watch), settings, TorchCatalog()).fallbacks


def _ops(named: Any) -> tuple[Op, ...]:
    """Find the overloads that an overload, a packet, a custom op or a name stands for."""
    name = op_name(named)
    found = TorchCatalog().overloads(name)
    if not found:
        raise InvalidContributionError(
            f"OpStrategyPack: there is no op {name}; import the library that defines it first"
        )
    return found
