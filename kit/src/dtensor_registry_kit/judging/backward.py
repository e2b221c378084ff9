"""Gradients of a sharded run against those of the whole run, for one row.

Give every rank its piece of the inputs and, for what it produced, its piece of the
upstream gradient; then what the ranks get for the inputs must be the gradient of the
whole run, spread as the chain rule says:

    output S(d)      upstream cut along d            input S(d)     gradient is cut along d
    output R         1/n of upstream on each rank    input R        sum over the ranks
    output P(sum)    upstream, whole, on each rank   input P(sum)   the whole gradient on each
    output P(avg)    1/n of upstream on each rank    input P(avg)   1/n of it on each
    output P(max)    upstream where the rank's own   input P(max)   sum over the ranks
                     element was taken

Source: the chain rule for `x = sum(x_r)`, `x = cat(x_r)`, `x = max(x_r)` and `x_r = x`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtensor_registry.placements import REPLICATE, Partial, Placement, Shard
from dtensor_registry.rules.metadata import fill
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry_kit.judging.judge import HOLDS_NOTHING, Verdict, describe_error
from dtensor_registry_kit.samples.sample import draw
from dtensor_registry_kit.simulation.compare import relative_tolerance
from dtensor_registry_kit.simulation.distribute import chunk, is_inexact
from dtensor_registry_kit.simulation.layout import (
    Layout,
    cuts_a_group,
    lacks_data,
    layout_of,
    too_small,
    unsimulated,
)
from dtensor_registry_kit.simulation.rebuild import rebuild_difference
from dtensor_registry_kit.simulation.reference_run import ReferenceRun, outputs_of

_KINDS = ("sum", "avg", "max", "min")


def judge_backward(
    whole: ReferenceRun,
    row: Sequence[Any],
    ranks: int,
    *,
    seed: int = 0,
    allow_empty: bool | None = False,
) -> Verdict:
    """Say whether a row gives right gradients, on a 1-D mesh.

    `not applicable` if the op has no gradient here, writes to its arguments, or the row has a
    placement without a gradient. With None for `allow_empty` no rank may hold nothing.

    >>> from dtensor_registry_kit.simulation.reference_run import run_reference
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    >>> whole = run_reference(torch.mul, (x, x[0]))
    >>> print(judge_backward(whole, [Shard(0), Shard(0), REPLICATE], 2))
    sound: S(0) <- S(0), R on 2 ranks
    """
    shown = (show_row(row, len(whole.inputs)),)
    layout = layout_of(whole, [row])
    if isinstance(layout, str):
        return Verdict("malformed", shown, (ranks,), layout)
    reason = (
        _without_gradient(whole, layout)
        or cuts_a_group(layout, (ranks,))
        or too_small(whole, layout, (ranks,))
    )
    if reason is not None:
        return Verdict("not applicable", shown, (ranks,), reason)
    drawn = [
        draw(value.shape, value.dtype, seed * 100 + 71 + index) if _is_real(value) else None
        for index, value in enumerate(whole.outputs)
    ]
    try:
        wanted = gradients(whole, whole.inputs, lambda index, _: drawn[index])
    except (RuntimeError, NotImplementedError) as error:
        return Verdict("not applicable", shown, (ranks,), f"no gradient: {describe_error(error)}")
    try:
        pieces = [
            whole.pieces(position, column, (ranks,), seed)
            for position, column in enumerate(layout.inputs)
        ]
    except NotImplementedError as error:  # a partial of a kind that the dtype cannot have
        return Verdict("not applicable", shown, (ranks,), str(error))
    if allow_empty is None and any(lacks_data(whole, pieces, rank) for rank in range(ranks)):
        return Verdict("not applicable", shown, (ranks,), HOLDS_NOTHING)
    found = []
    for rank in range(ranks):
        local = [piece[rank] for piece in pieces]

        def upstream(index: int, output: torch.Tensor, rank: int = rank) -> torch.Tensor:
            placement, want = layout.outputs[index], whole.outputs[index]
            assert placement is not None  # an output with a gradient is a tensor
            return _piece_of_upstream(drawn[index], placement[0], output, want, rank, ranks)

        try:
            found.append(gradients(whole, local, upstream))
        except (RuntimeError, NotImplementedError, IndexError) as error:
            on_empty = lacks_data(whole, pieces, rank)
            message = f"the backward of rank {rank} raises {describe_error(error)}"
            return Verdict("crash", shown, (ranks,), message, on_empty=on_empty)
    relative = relative_tolerance(whole.inputs, max(t.numel() for t in whole.inputs))
    for position, want in enumerate(wanted):
        if want is None:
            continue
        placement = layout.inputs[position][0]
        got = [gradients[position] for gradients in found]
        if isinstance(placement, Partial) and placement.reduce_op == "avg":
            got = [gradient * ranks for gradient in got]
        gap = rebuild_difference(got, want, (_gradient_placement(placement),), (ranks,), relative)
        if gap is not None:
            message = f"the gradient of input {position}{gap[0]} {gap[1]}"
            return Verdict("unsound", shown, (ranks,), message, worst=gap[1].worst)
    return Verdict("sound", shown, (ranks,))


def gradients(
    whole: ReferenceRun,
    tensors: Sequence[torch.Tensor],
    upstream: Callable[[int, torch.Tensor], torch.Tensor | None],
) -> list[Any]:
    """Run an op on some tensors and pull a gradient back to each that has one.

    Raises:
        RuntimeError: if nothing here has a gradient, as torch does.
    """
    leaves = [
        tensor.detach().clone().requires_grad_() if is_inexact(tensor) else tensor.clone()
        for tensor in tensors
    ]
    args, kwargs = fill(whole.args, whole.kwargs, leaves)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = outputs_of(whole.op(*args, **kwargs))
        live = [
            (output, upstream(index, output))
            for index, output in enumerate(outputs)
            if _is_real(output) and output.requires_grad
        ]
        if not live:
            raise RuntimeError("no output depends on an input")
        real = [leaf for leaf in leaves if leaf.requires_grad]
        pulled = iter(
            torch.autograd.grad(
                [output for output, _ in live],
                real,
                [gradient for _, gradient in live],
                materialize_grads=True,
            )
        )
    return [next(pulled) if leaf.requires_grad else None for leaf in leaves]


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_inexact(value)


def _piece_of_upstream(
    upstream: torch.Tensor | None,
    placement: Placement,
    local: torch.Tensor,
    want: torch.Tensor,
    rank: int,
    ranks: int,
) -> torch.Tensor:
    assert upstream is not None  # drawn for every output that can have a gradient
    if isinstance(placement, Shard):
        return chunk(upstream, placement.tensor_dim, rank, ranks)
    if isinstance(placement, Partial) and placement.reduce_op == "sum":
        return upstream
    if isinstance(placement, Partial) and placement.reduce_op in ("max", "min"):
        return torch.where(torch.isclose(local, want), upstream, 0)
    return upstream / ranks


def _gradient_placement(placement: Placement) -> Placement:
    if isinstance(placement, Shard):
        return placement
    if isinstance(placement, Partial) and placement.reduce_op in ("sum", "avg"):
        return REPLICATE
    return Partial("sum")


def _without_gradient(whole: ReferenceRun, layout: Layout) -> str | None:
    """Say why a row has no gradient to check, or None."""
    if whole.mutated:
        return "the op writes to its arguments"
    for (placement,) in (*layout.inputs, *(column for column in layout.outputs if column)):
        if isinstance(placement, Partial) and placement.reduce_op not in _KINDS:
            return f"{placement} has no gradient"
    return unsimulated(layout)
