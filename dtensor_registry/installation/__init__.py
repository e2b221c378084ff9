"""Put strategies in force in this process, and take them out again exactly."""

from dtensor_registry.installation.context import OpStrategyPack, implicit_strategy_context
from dtensor_registry.installation.installer import Installation, install
from dtensor_registry.installation.registration import Registration, register_single_dim_strategy
from dtensor_registry.torch_patch.fallback import FallbackWarning
from dtensor_registry.torch_patch.replicate import replicate_op_strategy

__all__ = [
    "FallbackWarning",
    "Installation",
    "OpStrategyPack",
    "Registration",
    "implicit_strategy_context",
    "install",
    "register_single_dim_strategy",
    "replicate_op_strategy",
]
