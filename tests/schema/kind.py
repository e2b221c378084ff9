"""One kind of op: a schema, what it computes, how it is called, and a plugin's rule for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload

from dtensor_registry import Partial, ShardingPlaceholder, tensor_inputs

LIBRARY = torch.library.Library("schema_matrix", "FRAGMENT")
SUM = Partial("sum")

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Call: TypeAlias = Callable[[Sequence[Any]], Arguments]
"""Builds the arguments of one call from the kind's tensors."""
Rule: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], list[list[Any]]]

KERNEL = object()
"""As `fake`: the kernel computes shapes too."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of op.

    Attributes:
        title: what is special about its schema.
        op: the op.
        tensors: global values of its tensors.
        calls: made one after the other; they differ in arguments that are no tensors.
        rule: a plugin's rule, or None where only a fallback makes sense.
        refused: by mode, where the registry may refuse: columns, or placements that occur in
            them, or `all`. Everywhere else the values must be right.
        on_gloo: whether it also runs on real processes.
        local: whether it runs with all ranks in one process; a `LocalTensor` hides that an op has
            changed its size.
    """

    title: str
    op: OpOverload
    tensors: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    rule: Rule | None
    refused: dict[str, str]
    on_gloo: bool
    local: bool

    @property
    def known_rule(self) -> Rule:
        """The rule of a kind that has one."""
        assert self.rule is not None, self.title
        return self.rule

    @property
    def mutated(self) -> tuple[str, ...]:
        """Names of the arguments that it writes to."""
        declared = self.op._schema.arguments
        return tuple(a.name for a in declared if a.alias_info and a.alias_info.is_write)


def kind(
    title: str,
    schema: str,
    kernel: Callable[..., Any],
    *calls: Call,
    tensors: Sequence[Tensor] | None = None,
    fake: Any = KERNEL,
    rule: Rule | None = None,
    fallback_refuses: str = "",
    rule_refuses: str = "",
    key: str = "CPU",
    tags: Sequence[torch.Tag] = (),
    on_gloo: bool = False,
    local: bool = True,
) -> Kind:
    """Define an op and describe it.

    Args:
        title: see `Kind`.
        schema: as `torch.library` takes it; a name with an overload is given its base name.
        kernel: what it computes.
        calls: see `Kind`; left out, all tensors are passed by position.
        tensors: global values; left out, `VALUES`, as many as the schema has tensors.
        fake: computes output metadata; None for an op that has nothing of the kind.
        rule: see `Kind`.
        fallback_refuses: where the fallback may refuse, such as `"P mixed"`.
        rule_refuses: where the rule may refuse.
        key: dispatch key of the kernel.
        tags: as `torch.library` takes them.
        on_gloo: see `Kind`.
        local: see `Kind`.
    """
    LIBRARY.define(schema, tags=tuple(tags))
    name = schema.split("(")[0]
    LIBRARY.impl(name, kernel, key)
    if fake is not None and key == "CPU":
        shapes = kernel if fake is KERNEL else fake
        torch.library.register_fake(f"schema_matrix::{name}", shapes, lib=LIBRARY)
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.schema_matrix, packet), overload or "default")
    given = VALUES[: len(op._schema.arguments)] if tensors is None else tuple(tensors)
    refused = {"fallback": fallback_refuses, "rule": rule_refuses}
    made = calls or (all_by_position,)
    return Kind(title, op, given, made, rule, refused, on_gloo, local)


def all_by_position(tensors: Sequence[Any]) -> Arguments:
    """Call with every tensor, in order."""
    return tuple(tensors), {}


def numbers(*shape: int, step: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    """Make a tensor of small whole numbers, so that sums come out exact in any order."""
    size = torch.Size(shape).numel()
    return ((torch.arange(size) * step) % 11 - 5).to(dtype).reshape(shape)


VALUES = (numbers(7, 4), numbers(7, 4, step=5), numbers(7, 4, step=7))
"""7 rows do not divide by 2 or 4 ranks, and leave no rank without one."""


def same_dims(outputs: int = 1, dims: Sequence[int] | None = None, partial: bool = False) -> Rule:
    """Make a rule that shards the same dim of every output and input.

    Args:
        outputs: how many tensors come out.
        dims: which dims; left out, all of the first input.
        partial: whether the op is linear in all inputs taken together.
    """

    def rule(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
        inputs = tensor_inputs(args, kwargs)
        cut = range(len(inputs[0].shape)) if dims is None else dims
        width = outputs + len(inputs)
        rows: list[list[Any]] = [[ShardingPlaceholder(dim)] * width for dim in cut]
        return rows + [[SUM] * width] * partial

    return rule


def dims_by(chosen: Callable[..., Sequence[int]], outputs: int = 1) -> Rule:
    """Make a rule whose shardable dims depend on arguments that are no tensors.

    Args:
        chosen: gives the dims for the arguments of a call.
        outputs: how many tensors come out.
    """

    def rule(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
        return same_dims(outputs, chosen(*args, **kwargs))(op, args, kwargs)

    return rule
