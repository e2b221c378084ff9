"""What authors and users may import from the top level."""

from __future__ import annotations

import pytest

import dtensor_registry

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert dtensor_registry.__all__ == PUBLIC
    assert dir(dtensor_registry) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(dtensor_registry, name) is not None


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dtensor_registry' has no attribute 'nope'"):
        dtensor_registry.nope  # noqa: B018
