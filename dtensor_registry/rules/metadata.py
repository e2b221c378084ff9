"""What a rule sees of a tensor, and how it finds the tensors among an op's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class TensorMeta(NamedTuple):
    """Global shape, stride (in elements) and dtype of a tensor; same fields as torch's own."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


def is_tensor(value: object) -> bool:
    """Say whether an argument is a tensor's metadata, torch's kind or ours.

    Metadata are named tuples, so they must be told from tuples of arguments by their fields.

    >>> is_tensor(TensorMeta((2, 3), (3, 1), None)), is_tensor((2, 3))
    (True, False)
    """
    return hasattr(value, "shape") and hasattr(value, "dtype")


def tensor_inputs(args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
    """List the tensors of a call in row order: positional ones, then keyword ones.

    Tensors inside a list argument count one by one, where they stand. This is the order
    in which a row lists its inputs.

    >>> x = TensorMeta((2,), (1,), None)
    >>> tensor_inputs((x, 3, [x, None]), {"out": x}) == (x, x, x)
    True
    """
    return (*_walk(args), *_walk(list(kwargs.values())))


def fill(
    args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put other tensors in the place of a call's tensors, in row order."""
    given = iter(tensors)
    new_args = tuple(_fill(value, given) for value in args)
    return new_args, {name: _fill(value, given) for name, value in kwargs.items()}


def count_outputs(op: Any) -> int:
    """Count the outputs in a row of an op: its tensor returns, a list of tensors counting as one.

    >>> count_outputs("an op that is only a name")
    1
    """
    # The one place where a rule must look at a schema; torch has no other name for it.
    schema = getattr(op, "_schema", None)
    if schema is None:
        return 1
    return sum("Tensor" in str(returned.type) for returned in schema.returns)


def _walk(values: Sequence[object]) -> Iterator[Any]:
    for value in values:
        if is_tensor(value):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _walk(value)


def _fill(value: Any, given: Iterator[Any]) -> Any:
    if is_tensor(value):
        return next(given)
    if isinstance(value, (list, tuple)):
        filled = [_fill(entry, given) for entry in value]
        return filled if isinstance(value, list) else tuple(filled)
    return value
