"""The vocabulary of rules: strategies, templates that make rules, and the metadata they read."""

from dtensor_registry.rules.einsum import Einsum, einsum
from dtensor_registry.rules.like import Like, like
from dtensor_registry.rules.metadata import TensorMeta, count_outputs, is_tensor, tensor_inputs
from dtensor_registry.rules.pointwise import Pointwise, pointwise
from dtensor_registry.rules.strategy import FallbackStrategy, Rule, SchemaInfo, SingleDimStrategy

__all__ = [
    "Einsum",
    "FallbackStrategy",
    "Like",
    "Pointwise",
    "Rule",
    "SchemaInfo",
    "SingleDimStrategy",
    "TensorMeta",
    "count_outputs",
    "einsum",
    "is_tensor",
    "like",
    "pointwise",
    "tensor_inputs",
]
