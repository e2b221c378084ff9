"""One call of an op on whole tensors, and the same call with other tensors in their place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dtensor_registry.placements import Placements
from dtensor_registry.rules.metadata import is_tensor, tensor_inputs
from dtensor_registry.verification.compare import carries_evidence
from dtensor_registry.verification.pieces import hand_out
from dtensor_registry.verification.rebuild import slot_difference


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A call on whole tensors: what goes in, what comes out, what is written to.

    Attributes:
        op: what was called.
        args: positional arguments as they were before the call.
        kwargs: keyword arguments as they were before the call.
        inputs: the tensors among them, in row order.
        outputs: what the op returned, one entry each; numbers and None included.
        mutated: position of each input that the op wrote to, and what it held afterwards.
        is_plain: for each output, whether it is a tensor too plain to prove anything.
    """

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[Any, ...]
    mutated: dict[int, torch.Tensor]
    is_plain: tuple[bool, ...]
    _handed_out: dict[tuple[Any, ...], list[torch.Tensor]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def tensor_outputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors among the outputs."""
        return tuple(value for value in self.outputs if is_tensor(value))

    def pieces(
        self, position: int, placements: Placements, mesh: tuple[int, ...], seed: int
    ) -> list[torch.Tensor]:
        """Hand out one input to the ranks; remembered, since rows share most of their pieces."""
        key = (position, placements, mesh, seed)
        handed = self._handed_out.get(key)
        if handed is None:
            # Seeded per input: equal tensors must not be split into equal addends.
            generator = torch.Generator().manual_seed(seed * 1000 + position)
            handed = hand_out(self.inputs[position], placements, mesh, generator)
            self._handed_out[key] = handed
        # Copies, always: that an op left its whole argument as it was does not show that it
        # writes to none (relu_ of positive numbers).
        return [piece.clone() for piece in handed]


def run_whole(
    op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> WholeRun:
    """Run an op on whole tensors (copies: arguments are left alone).

    Raises whatever the op raises.
    """
    kwargs = dict(kwargs or {})
    inputs = tuple(tensor.detach() for tensor in tensor_inputs(args, kwargs))
    copies = [tensor.clone() for tensor in inputs]
    outputs = call(op, args, kwargs, copies)
    mutated = {
        position: after
        for position, (before, after) in enumerate(zip(inputs, copies, strict=True))
        if not torch.equal(before, after)
    }
    plain = tuple(is_tensor(value) and not carries_evidence(value) for value in outputs)
    return WholeRun(op, tuple(args), kwargs, inputs, outputs, mutated, plain)


def call(
    op: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tensors: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    """Call an op with other tensors in the place of a call's own; list what it returns."""
    args, kwargs = fill(args, kwargs, tensors)
    with torch.no_grad(), warnings.catch_warnings():
        # A wrong row makes an op warn of many things; what it computes is the evidence.
        warnings.simplefilter("ignore")
        return outputs_of(op(*args, **kwargs))


def is_deterministic(whole: WholeRun) -> bool:
    """Say whether the whole call gives the same when run again."""
    again = run_whole(whole.op, whole.args, whole.kwargs)
    return len(again.outputs) == len(whole.outputs) and all(
        slot_difference(new, old, 0.0) is None
        for new, old in zip(again.outputs, whole.outputs, strict=True)
    )


def outputs_of(result: Any) -> tuple[Any, ...]:
    """List what an op returned, one entry for each tensor, number or None among its returns."""
    if result is None:
        return ()
    if isinstance(result, (tuple, list)):
        return tuple(
            entry
            for value in result
            for entry in (outputs_of(value) if isinstance(value, (tuple, list)) else (value,))
        )
    return (result,)


def fill(
    args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put other tensors in the place of a call's tensors, in row order."""
    given = iter(tensors)
    new_args = tuple(_fill(value, given) for value in args)
    return new_args, {name: _fill(value, given) for name, value in kwargs.items()}


def _fill(value: Any, given: Iterator[Any]) -> Any:
    if is_tensor(value):
        return next(given)
    if isinstance(value, (list, tuple)):
        return type(value)(_fill(entry, given) for entry in value)
    return value
