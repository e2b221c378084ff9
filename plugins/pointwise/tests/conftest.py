"""Calls of pointwise ops, made up from their schemas: every shape pattern of broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeAlias

import pytest
import torch

from dtensor_registry_kit import overloads

list(overloads("prims"))  # has torch define them

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

# The shapes of the tensors of a call, in order; the last one is used for any further tensor.
# 5 is uneven for 2 and for 3 ranks. A None is a Python number in a tensor's place.
SHAPES: tuple[tuple[tuple[int, ...] | None, ...], ...] = (
    ((5, 4), (5, 4)),
    ((5, 4), (4,)),
    ((5, 4), (1, 4)),
    ((5, 4), (5, 1)),
    ((5, 4), (4,), (5, 1)),
    ((4,), (5, 4)),
    ((1, 4), (4,)),
    ((5, 4), ()),
    ((), ()),
    ((5, 4), None),
)

INTEGER_OPS = ("__", "bitwise_", "gcd", "lcm")
# Ops that tell few values apart get few values, or all elements would look alike to them.
FEW_VALUES_OPS = ("eq.", "ge.", "gt.", "is", "le.", "lt.", "logical_", "ne.")
FEW_VALUES = torch.tensor([-1.0, 0.0, 0.0, 0.0, 1.25, torch.inf, -torch.inf, torch.nan]).double()
NUMBERS = {
    "decimals": 1,
    "eps": 0.1,
    "lambd": 0.25,
    "max": 0.75,
    "max_val": 0.75,
    "min": -0.5,
    "min_val": -0.5,
    "n": 2,
    "p": 1,
    "scale": 1.5,
    "threshold": 0.25,
}


@pytest.fixture(scope="session")
def calls_of() -> Callable[[Any], list[Call]]:
    """Return `op -> calls`; each call runs, and has its out tensors in its kwargs."""
    return lambda op: [call for shapes in SHAPES for call in calls_with(op, shapes)]


def calls_with(op: Any, shapes: tuple[tuple[int, ...] | None, ...]) -> Iterator[Call]:
    """Make the call of an op with given shapes, if the op takes them."""
    tensors = count()
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in op._schema.arguments:
        if parameter.is_out:
            continue
        value = _value(op, parameter, shapes, tensors)
        if parameter.kwarg_only:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    if next(tensors) < 2 and shapes != SHAPES[0] and None not in shapes and shapes[0] != ():
        return  # An op with one tensor meets no broadcasting.
    try:
        kwargs.update(_outs(op, tuple(args), kwargs))
        op(*_copies(args), **{name: _copy(value) for name, value in kwargs.items()})
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return
    yield tuple(args), kwargs


def _value(op: Any, parameter: Any, shapes: Any, tensors: Iterator[int]) -> Any:
    kind = str(parameter.type)
    name = parameter.name
    if "Tensor" in kind:
        position = next(tensors)
        shape = shapes[min(position, len(shapes) - 1)]
        return 1.5 if shape is None else _tensor(op, name, shape, position)
    if name == "dtype":
        return torch.float32
    if name == "rounding_mode":
        return "floor"
    if name in NUMBERS:
        return NUMBERS[name]
    if kind in ("number", "int") or (kind == "Optional[number]" and name != "other"):
        return 3 if _is_integer(op) or kind == "int" else 1.25
    if kind == "str":
        return "tanh"
    return parameter.default_value if parameter.has_default_value() else None


def _tensor(op: Any, name: str, shape: tuple[int, ...], position: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(position)
    if name in ("condition", "mask"):
        return torch.rand(shape, generator=generator) < 0.5
    if _is_integer(op):
        return torch.randint(1, 9, shape, generator=generator)
    if _name(op).startswith(FEW_VALUES_OPS):
        return FEW_VALUES[torch.randint(len(FEW_VALUES), shape, generator=generator)]
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    if "conj" in _name(op):
        return torch.complex(values, values - 2)
    if name == "n":
        return (values * 4).round()
    return values * 3 - 1


def _is_integer(op: Any) -> bool:
    return _name(op).startswith(INTEGER_OPS)


def _name(op: Any) -> str:
    return str(op).partition(".")[2]


def _outs(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Make the out tensors of a call: of the shape of what it gives, and full of other values."""
    names = [parameter.name for parameter in op._schema.arguments if parameter.is_out]
    if not names:
        return {}
    error: Exception | None = None
    for dtype in (torch.float64, torch.int64, torch.bool, torch.complex128):
        outs = {name: torch.empty(0, dtype=dtype) for name in names}
        if "exponent" in outs:
            outs["exponent"] = torch.empty(0, dtype=torch.int32)
        try:
            op(*args, **kwargs, **outs)
        except RuntimeError as problem:
            error = problem
            continue
        return {name: torch.full_like(tensor, 7) for name, tensor in outs.items()}
    raise RuntimeError(f"{op} takes no out tensor") from error


def _copies(values: Any) -> list[Any]:
    return [_copy(value) for value in values]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
