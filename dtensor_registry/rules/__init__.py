"""The vocabulary of rules: strategies, templates that make rules, and the metadata they read."""

from dtensor_registry.rules.batched import Batched, batched
from dtensor_registry.rules.einsum import Einsum, einsum
from dtensor_registry.rules.frozen import Case, Frozen, case, frozen
from dtensor_registry.rules.like import Like, like
from dtensor_registry.rules.metadata import TensorMeta, count_outputs, is_tensor, tensor_inputs
from dtensor_registry.rules.notation import Notation, notation
from dtensor_registry.rules.passthrough import Passthrough, passthrough
from dtensor_registry.rules.pointwise import Pointwise, pointwise
from dtensor_registry.rules.reduction import Reduction, reduction
from dtensor_registry.rules.row import NamedRow, Rows, row, rows
from dtensor_registry.rules.signature import Bindable, Parameter, Signature, bind
from dtensor_registry.rules.strategy import FallbackStrategy, Rule, SchemaInfo, SingleDimStrategy
from dtensor_registry.rules.without import CORRECTED_TABLE, Without, WrongRows, without, wrong_rows

__all__ = [
    "CORRECTED_TABLE",
    "Batched",
    "Bindable",
    "Case",
    "Einsum",
    "FallbackStrategy",
    "Frozen",
    "Like",
    "NamedRow",
    "Notation",
    "Parameter",
    "Passthrough",
    "Pointwise",
    "Reduction",
    "Rows",
    "Rule",
    "SchemaInfo",
    "Signature",
    "SingleDimStrategy",
    "TensorMeta",
    "Without",
    "WrongRows",
    "batched",
    "bind",
    "case",
    "count_outputs",
    "einsum",
    "frozen",
    "is_tensor",
    "like",
    "notation",
    "passthrough",
    "pointwise",
    "reduction",
    "row",
    "rows",
    "tensor_inputs",
    "without",
    "wrong_rows",
]
