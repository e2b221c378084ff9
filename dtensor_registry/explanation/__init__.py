"""Why a call is sharded as it is, as a value, and the notation in which it is asked for."""

from dtensor_registry.explanation.notation import (
    AskedChoice,
    AskedTensor,
    is_tensor_text,
    parse_argument,
    parse_choice,
    parse_tensor,
)
from dtensor_registry.explanation.values import (
    Choice,
    Explanation,
    ExplanationReport,
    Move,
    Part,
    Piece,
    Provider,
    Rejected,
    Step,
    TensorShown,
    WhyNot,
)

__all__ = [
    "AskedChoice",
    "AskedTensor",
    "Choice",
    "Explanation",
    "ExplanationReport",
    "Move",
    "Part",
    "Piece",
    "Provider",
    "Rejected",
    "Step",
    "TensorShown",
    "WhyNot",
    "is_tensor_text",
    "parse_argument",
    "parse_choice",
    "parse_tensor",
]
