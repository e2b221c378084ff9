"""Rules as functions that take the arguments of their op, by the names that the schema has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dtensor_registry import Partial, is_tensor, passthrough

Row: TypeAlias = list[Any]


@dataclass(frozen=True, slots=True)
class ByName:
    """The rule that `rows`, called as the op is, gives."""

    rows: Callable[..., Iterable[Row]]

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
        """Return the rows for one call."""
        return list(self.rows(*args, **kwargs))

    def __str__(self) -> str:
        return self.rows.__name__.removesuffix("_rows")


def line(outputs: Iterable[Any], *inputs: tuple[Any, Any]) -> Row:
    """Write a row: the outputs' entries, then those of the arguments that are tensors."""
    return [*outputs, *(entry for value, entry in inputs if is_tensor(value))]


def partials(tensor: Any) -> list[Partial]:
    """List the kinds of partial that a tensor of this dtype can be."""
    rows = passthrough()(None, (tensor,), {})
    return [entry for entry, _ in rows if isinstance(entry, Partial)]


def linear(tensor: Any) -> list[Partial]:
    """List those of them that pass where an op is linear in the tensor."""
    if str(tensor.dtype) == "torch.bool":
        return []  # a sum of truth values is a logical or
    return [entry for entry in partials(tensor) if entry.reduce_op in ("sum", "avg")]
