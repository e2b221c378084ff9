"""For which calls rows of torch's are wrong, read from dtypes and from arguments in the cache key.

A sum of integers narrower than 64 bits wraps around in the tests of a model; one of 64 bits would
have to pass 9e18, so that the rows that are wrong for it alone stay.
"""

from __future__ import annotations

from typing import Any

from dtensor_registry import is_tensor

_NARROW = {"uint8": 8, "int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32}
_WIDE = {"int64": 64, "uint64": 64}
_UNSIGNED = "uint"


def two_narrow_integers(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """both operands are integers of less than 64 bits"""
    return all(is_tensor(arg) and _dtype(arg) in _NARROW for arg in args[:2])


def narrow_integers(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the input is of integers of less than 64 bits"""
    return _dtype(args[0]) in _NARROW


def other_is_no_such_integer(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """one operand is of integers of less than 64 bits, and the other of another dtype"""
    dtypes = [_dtype(arg) if is_tensor(arg) else "" for arg in args[:2]]
    return dtypes[0] != dtypes[1] and not _NARROW.keys().isdisjoint(dtypes)


def integers(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """an operand is of integers"""
    return any(is_tensor(arg) and _is_integer(_dtype(arg)) for arg in args[:2])


def narrow_times_fraction(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the input is of integers of less than 64 bits, and the number is a float"""
    return isinstance(args[1], float) and _dtype(args[0]) in _NARROW


def numbers_with_nan(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """an operand is of floats"""
    return any(arg.dtype.is_floating_point for arg in args if hasattr(arg, "shape"))


def not_rising(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the value is above the threshold, or wraps to above it"""
    threshold, value = args[1:3]
    return bool(value > threshold or (value < 0 and _dtype(args[0]).startswith(_UNSIGNED)))


def holds_more(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """integers of less than 64 bits become floats or wider integers"""
    target = _asked(args, kwargs)
    source = _dtype(args[0])
    return source in _NARROW and target not in ("", source) and _bits(target) > _bits(source)


def holds_less(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """integers become integers that do not hold all of their values"""
    target, source = _asked(args, kwargs), _dtype(args[0])
    if not (_is_integer(source) and _is_integer(target)) or source == target:
        return False
    unsigned, to_unsigned = (name.startswith(_UNSIGNED) for name in (source, target))
    if unsigned == to_unsigned:
        return _bits(target) < _bits(source)
    return to_unsigned or _bits(target) <= _bits(source)


def becomes_complex(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the result is complex"""
    return _asked(args, kwargs).startswith("complex")


def adds_up_wider(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """floats are added up as integers, or integers of less than 64 bits as wider ones"""
    target, source = _asked(args, kwargs), _dtype(args[0])
    if source in _NARROW:
        return target != source
    return args[0].dtype.is_floating_point and _is_integer(target)


def another_dtype(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the bits are read as another dtype"""
    return str(args[1]) != str(args[0].dtype)


def two_dtypes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the two tensors have different dtypes"""
    return _dtype(args[0]) != _dtype(args[1])


def first_size_differs(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """one operand is as if repeated along the first dim"""
    return _size(args[0], 0) != _size(args[1], 0)


def second_size_differs(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """one operand is as if repeated along the second dim"""
    return _size(args[0], 1) != _size(args[1], 1)


def no_batch_of_right_sides(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the right-hand side has fewer dims than the matrices"""
    return len(args[2].shape) < len(args[0].shape)


def no_batch_to_pool(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """the input has no batch dim"""
    return len(args[0].shape) < (5 if "3d" in str(op) else 4)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Name the dtype that a call asks for; empty if it asks for none."""
    asked = kwargs.get("dtype")
    return "" if asked is None else str(asked).removeprefix("torch.")


def _is_integer(dtype: str) -> bool:
    return dtype in _NARROW or dtype in _WIDE


def _bits(dtype: str) -> int:
    """Count the bits of integers; floats hold more, truth values less, than any of those."""
    if dtype == "bool":
        return 1
    return _NARROW.get(dtype) or _WIDE.get(dtype) or 128


def _size(tensor: Any, dim: int) -> int:
    return int(tensor.shape[dim]) if dim < len(tensor.shape) else 1
