"""Convolutions, which torch runs by a handler that moves nothing.

Where torch's own rule wants an input elsewhere, the handler takes its piece for the whole: wrong
numbers, or a local shape that is not a piece of the result. These rules say what the mathematics
allows on one mesh dim, and the host moves what is not so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dtensor_registry import (
    REPLICATE,
    Counterexample,
    Held,
    Partial,
    ShardingPlaceholder,
    SingleDimStrategy,
)

Row = list[Any]

HANDLERS = "torch.distributed.tensor._tp_conv"


def forward(_: Any, args: tuple[Any, ...], __: dict[str, Any]) -> list[Row]:
    """Give the rows of `out <- input, weight, bias`."""
    bias = args[2] is not None
    return [row[: 3 + bias] for row in _forward(args[0], args[1], *args[3:9])]


def backward(_: Any, args: tuple[Any, ...], __: dict[str, Any]) -> list[Row]:
    """Give the rows of `input's, weight's, bias's gradient <- gradient, input, weight`.

    They follow from the forward rows: what is summed over a mesh dim forward is whole backward,
    and what is whole forward is summed over the mesh dim backward, if anything is cut there.
    """
    mask = args[10]
    rows = []
    for out, *inputs in _forward(args[1], args[2], *args[4:10]):
        tensor, weight, _bias = inputs
        if isinstance(out, Partial):
            gradient, gradients = REPLICATE, [tensor, weight, REPLICATE]
        else:
            gradient, gradients = out, [Partial() if p == REPLICATE else p for p in inputs]
        wanted = [p if needed else None for p, needed in zip(gradients, mask, strict=True)]
        rows.append([*wanted, gradient, tensor, weight])
    return rows


def _forward(
    tensor: Any,
    weight: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Iterator[Row]:
    """Give the rows of `out <- input, weight, bias`, with a bias always."""
    cut = ShardingPlaceholder
    yield [cut(0), cut(0), REPLICATE, REPLICATE]
    taken, made = (0, 1) if transposed else (1, 0)  # the weight's dims of channels
    if groups == 1:
        yield [cut(1), REPLICATE, cut(made), cut(0)]
        yield [Partial(), cut(1), cut(taken), Partial()]
    else:
        # Whole groups: the weight's dim 0 holds them all, whichever channels it is of.
        yield [cut(1, groups), cut(1, groups), cut(0, groups), cut(0, groups)]
    for at, size in enumerate(tensor.shape[2:]):
        kernel = weight.shape[2 + at]
        apart = _of(stride, at) == kernel and not _of(padding, at) and not _of(output_padding, at)
        if kernel == 1 and apart:
            yield [cut(2 + at), cut(2 + at), REPLICATE, REPLICATE]
        elif apart and _of(dilation, at) == 1 and (transposed or size % kernel == 0):
            # Windows do not overlap, and no rank may have a part of one.
            windows = size if transposed else size // kernel
            yield [cut(2 + at, windows), cut(2 + at, windows), REPLICATE, REPLICATE]


def _of(values: Sequence[int], at: int) -> int:
    """Give the value of one dim; a single one is that of all."""
    return values[at if len(values) > 1 else 0]


def local_arguments(
    arguments: Mapping[str, Any],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[tuple[int, ...] | None],
) -> Mapping[str, Any]:
    """Count the groups, and the bias, that a rank has."""
    weight = inputs["weight"]
    made = inputs["grad_output"] if "grad_output" in inputs else outputs[0]
    assert made is not None
    # The weight's dim 1 has the channels of one group: those made, or those taken.
    channels = made[1] if arguments["transposed"] else inputs["input"][1]
    changes: dict[str, Any] = {"groups": max(channels // max(weight[1], 1), 1)}
    if arguments.get("bias_sizes") is not None:
        changes["bias_sizes"] = [made[1]]
    return changes


_IMAGE, _WEIGHT, _MADE = (
    Held("float64", (1, 2, 1, 2)),
    Held("float64", (2, 2, 1, 1)),
    Held("float64", (1, 2, 1, 2)),
)
_OPTIONS = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
_CALL = (_IMAGE, _WEIGHT, None, *_OPTIONS)
_GRADIENTS = (_MADE, _IMAGE, _WEIGHT, None, *_OPTIONS, [True, True, False])
_LINE, _KERNEL = Held("float64", (1, 1, 1, 4)), Held("float64", (1, 1, 1, 3))
_AROUND = ([1, 1], [0, 1], [1, 1], False, [0, 0], 1)

_wrong = partial(
    Counterexample, because="the handler takes what is cut or pending there for the whole"
)

CONVOLUTIONS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        "aten.convolution.default",
        forward,
        allow_empty_pieces=False,
        replaces_handler=f"{HANDLERS}.convolution_handler",
        local_arguments=local_arguments,
        shows=(
            _wrong("R, P(sum)", _CALL),
            _wrong("R, S(0)", _CALL),
            _wrong("S(1), S(1)", _CALL),
            _wrong("P(sum), R", _CALL, until="2.13.0"),
            _wrong("P(sum), R", _CALL, raises=True, since="2.14.1"),
            _wrong("S(3), R", (_LINE, _KERNEL, None, *_AROUND)),
        ),
    ),
    SingleDimStrategy(
        "aten.convolution_backward.default",
        backward,
        allow_empty_pieces=False,
        replaces_handler=f"{HANDLERS}.convolution_backward_handler",
        local_arguments=local_arguments,
        shows=(
            _wrong("R, R, P(sum)", _GRADIENTS),
            _wrong("S(1), R, S(0)", _GRADIENTS, raises=True),
            _wrong("R, S(1), S(1)", _GRADIENTS, raises=True),
        ),
    ),
)
