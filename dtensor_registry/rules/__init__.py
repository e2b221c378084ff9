"""The vocabulary of rules: strategies, templates that make rules, and the metadata they read."""

from dtensor_registry.rules.amended import Amended, Amendment, Compute, MoveFirst, Refuse, amended
from dtensor_registry.rules.batched import Batched, batched
from dtensor_registry.rules.counterexample import Counterexample, Held
from dtensor_registry.rules.einsum import Einsum, einsum
from dtensor_registry.rules.frozen import Case, Frozen, case, frozen
from dtensor_registry.rules.like import Like, like
from dtensor_registry.rules.metadata import TensorMeta, count_outputs, is_tensor, tensor_inputs
from dtensor_registry.rules.notation import Notation, notation
from dtensor_registry.rules.passthrough import Passthrough, passthrough
from dtensor_registry.rules.placed import PlacedCall, PlacedTensor
from dtensor_registry.rules.pointwise import Pointwise, pointwise
from dtensor_registry.rules.reduction import Reduction, reduction
from dtensor_registry.rules.row import NamedRow, Rows, row, rows
from dtensor_registry.rules.signature import Bindable, Parameter, Signature, bind
from dtensor_registry.rules.strategy import FallbackStrategy, Rule, SchemaInfo, SingleDimStrategy
from dtensor_registry.rules.without import CORRECTED_TABLE, Without, WrongRows, without, wrong_rows

__all__ = [
    "CORRECTED_TABLE",
    "Amended",
    "Amendment",
    "Batched",
    "Bindable",
    "Case",
    "Compute",
    "Counterexample",
    "Einsum",
    "FallbackStrategy",
    "Frozen",
    "Held",
    "Like",
    "MoveFirst",
    "NamedRow",
    "Notation",
    "Parameter",
    "Passthrough",
    "PlacedCall",
    "PlacedTensor",
    "Pointwise",
    "Reduction",
    "Refuse",
    "Rows",
    "Rule",
    "SchemaInfo",
    "Signature",
    "SingleDimStrategy",
    "TensorMeta",
    "Without",
    "WrongRows",
    "amended",
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
