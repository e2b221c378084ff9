"""A plugin host for DTensor sharding strategies.

Importing this package loads no plugin, touches no torch table, starts no process group
and does not import torch: what needs torch is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtensor_registry.auditing import audit
    from dtensor_registry.diagnosis import Checkup, doctor
    from dtensor_registry.explanation.explain import explain
    from dtensor_registry.hookspecs import hookimpl
    from dtensor_registry.installation import (
        Installation,
        OpStrategyPack,
        implicit_strategy_context,
        install,
        register_single_dim_strategy,
        replicate_op_strategy,
    )
    from dtensor_registry.placements import REPLICATE, Partial, ShardingPlaceholder
    from dtensor_registry.rules import (
        Compute,
        Counterexample,
        FallbackStrategy,
        Held,
        MoveFirst,
        PlacedCall,
        PlacedTensor,
        Refuse,
        SchemaInfo,
        SingleDimStrategy,
        WrongRows,
        amended,
        batched,
        case,
        count_outputs,
        einsum,
        frozen,
        is_tensor,
        like,
        notation,
        passthrough,
        pointwise,
        reduction,
        row,
        rows,
        tensor_inputs,
        without,
        wrong_rows,
    )
    from dtensor_registry.settings import Settings

__all__ = [
    "REPLICATE",
    "Checkup",
    "Compute",
    "Counterexample",
    "FallbackStrategy",
    "Held",
    "Installation",
    "MoveFirst",
    "OpStrategyPack",
    "Partial",
    "PlacedCall",
    "PlacedTensor",
    "Refuse",
    "SchemaInfo",
    "Settings",
    "ShardingPlaceholder",
    "SingleDimStrategy",
    "WrongRows",
    "amended",
    "audit",
    "batched",
    "case",
    "count_outputs",
    "doctor",
    "einsum",
    "explain",
    "frozen",
    "hookimpl",
    "implicit_strategy_context",
    "install",
    "is_tensor",
    "like",
    "notation",
    "passthrough",
    "pointwise",
    "reduction",
    "register_single_dim_strategy",
    "replicate_op_strategy",
    "row",
    "rows",
    "tensor_inputs",
    "without",
    "wrong_rows",
]


_HOMES = (
    "hookspecs",
    "placements",
    "rules",
    "settings",
    "diagnosis",
    "installation",
    "auditing",
    "explanation.explain",
)
"""Modules that have the names, those that need torch last."""
_MOVED = {"derive": "from dtensor_registry_kit import derive"}


def __getattr__(name: str) -> Any:
    # PEP 562: every `import torch` imports this package (autoload.py) and must not pay for it, and
    # `dtensor-registry plugins` starts without torch.
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"dtensor_registry.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    if name in _MOVED:
        raise AttributeError(
            f"module {__name__!r} no longer has {name!r}: it is in dtensor-registry-kit now.\n"
            f"  pip install dtensor-registry-kit\n  {_MOVED[name]}"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
