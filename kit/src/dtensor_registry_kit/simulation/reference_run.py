"""One call of an op on whole tensors, and the same call with other tensors in their place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from dtensor_registry.placements import Placements
from dtensor_registry.rules.metadata import fill, is_tensor, tensor_inputs
from dtensor_registry_kit.simulation.compare import carries_evidence, difference
from dtensor_registry_kit.simulation.distribute import distribute
from dtensor_registry_kit.simulation.rebuild import slot_difference

_Roomy: TypeAlias = tuple[torch.Tensor, torch.Size, tuple[int, ...]]
"""A buffer, and the shape and stride of the tensor at its start."""


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """A call on whole tensors: what goes in, what comes out, what is written to.

    Attributes:
        op: what was called.
        args: positional arguments as they were before the call.
        kwargs: keyword arguments as they were before the call.
        inputs: the tensors among them, in row order.
        outputs: what the op returned, one entry each; numbers and None included.
        mutated: position of each input that the op wrote to, and what it held afterwards.
        is_plain: for each output, whether it is a tensor too plain to prove anything.
        tied: pairs (output, input) that are one tensor, as in an in-place or `out=` op.
        write_only: tied inputs of which the op needs neither what they hold nor their size.
    """

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[Any, ...]
    mutated: dict[int, torch.Tensor]
    is_plain: tuple[bool, ...]
    tied: tuple[tuple[int, int], ...] = ()
    write_only: frozenset[int] = frozenset()
    _handed_out: dict[tuple[Any, ...], list[_Roomy]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def tensor_outputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors among the outputs."""
        return tuple(value for value in self.outputs if is_tensor(value))

    @property
    def operands(self) -> tuple[torch.Tensor, ...]:
        """The inputs that the op reads."""
        return tuple(t for at, t in enumerate(self.inputs) if at not in self.write_only)

    def pieces(
        self, position: int, placements: Placements, mesh: tuple[int, ...], seed: int
    ) -> list[torch.Tensor]:
        """Hand out one input to the ranks; remembered, since rows share most of their pieces."""
        key = (position, placements, mesh, seed)
        handed = self._handed_out.get(key)
        if handed is None:
            # Seeded per input: equal tensors must not be split into equal addends.
            generator = torch.Generator().manual_seed(seed * 1000 + position)
            pieces = distribute(self.inputs[position], placements, mesh, generator)
            room = max(tensor.numel() for tensor in (*self.inputs, *self.tensor_outputs))
            handed = self._handed_out[key] = [_with_room(piece, room) for piece in pieces]
        # Copies, always: that an op left its whole argument as it was does not show that it
        # writes to none (relu_ of positive numbers).
        return [buffer.clone().as_strided(shape, stride) for buffer, shape, stride in handed]

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Make the same call on one rank's tensors; list what it returns.

        Raises whatever the op raises.
        """
        if self.write_only:  # torch would warn, from C++, of each that has not the right size
            tensors = [
                tensor.new_empty(0) if position in self.write_only else tensor
                for position, tensor in enumerate(tensors)
            ]
        return call(self.op, self.args, self.kwargs, tensors)


def _with_room(piece: torch.Tensor, room: int) -> _Roomy:
    """Put a piece at the start of a larger buffer.

    Not every kernel checks that the sizes of its arguments agree, and a wrong row makes them
    disagree: with room to spare it reads zeros, not memory of others (native_batch_norm
    with short running statistics wrote past their end).
    """
    dense = torch.empty_like(piece)
    buffer = piece.new_zeros(piece.numel() + room)
    buffer.as_strided(dense.shape, dense.stride()).copy_(piece)
    return buffer, dense.shape, dense.stride()


@contextmanager
def alike_memory() -> Iterator[None]:
    """Have all memory that a kernel leaves as it finds it hold the same: nan, or the largest.

    Else `empty_like` would differ from run to run, and now and then not.
    """
    was_on = torch.are_deterministic_algorithms_enabled()
    warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have a deterministic implementation")
            yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=warned_only)


def run_reference(
    op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> ReferenceRun:
    """Run an op on whole tensors (copies: arguments are left alone).

    Raises:
        NotImplementedError: for tensors that are not plain: sparse, quantised, on `meta`.
        Exception: whatever the op raises.

    >>> import torch
    >>> whole = run_reference(torch.ops.aten.mul.Tensor, (torch.ones(2), torch.ones(2)))
    >>> whole.outputs
    (tensor([1., 1.]),)
    """
    kwargs = dict(kwargs or {})
    inputs = tuple(tensor.detach() for tensor in tensor_inputs(args, kwargs))
    _require_plain(inputs)
    copies = [tensor.clone() for tensor in inputs]
    outputs = call(op, args, kwargs, copies)
    _require_plain([value for value in outputs if is_tensor(value)])
    mutated = {
        position: after
        for position, (before, after) in enumerate(zip(inputs, copies, strict=True))
        if difference(after, before, 0.0) is not None
    }
    plain = tuple(is_tensor(value) and not carries_evidence(value) for value in outputs)
    tied = tuple(
        (output, position)
        for output, value in enumerate(outputs)
        for position, copy in enumerate(copies)
        if value is copy
    )
    whole = ReferenceRun(op, tuple(args), kwargs, inputs, outputs, mutated, plain, tied)
    return replace(whole, write_only=_write_only(whole))


def _require_plain(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            kind = f"{tensor.layout}, {tensor.dtype}, {tensor.device}"
            raise NotImplementedError(f"ground truth needs plain dense tensors, got one of {kind}")


def _write_only(whole: ReferenceRun) -> frozenset[int]:
    """Find the `out=` tensors: the call gives the same when they are empty."""
    by_keyword = len(tensor_inputs((), whole.kwargs))
    first = len(whole.inputs) - by_keyword
    outs = frozenset(position for _, position in whole.tied if position >= first)
    if not outs:
        return outs
    trial = replace(whole, write_only=outs)
    try:
        again = trial.run([tensor.clone() for tensor in whole.inputs])
    except Exception:
        return frozenset()  # the op insists on the size of its out tensors
    return outs if _are_same(again, whole.outputs) else frozenset()


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


def is_deterministic(whole: ReferenceRun) -> bool:
    """Say whether the whole call gives the same when run again.

    An op that may draw random numbers is run more often: of few elements all may be alike by
    luck. It need not draw any (attention without dropout).
    """
    may_draw = torch.Tag.nondeterministic_seeded in getattr(whole.op, "tags", ())
    return all(
        _are_same(whole.run([tensor.clone() for tensor in whole.inputs]), whole.outputs)
        for _ in range(12 if may_draw else 1)
    )


def _are_same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        slot_difference(new, old, 0.0) is None for new, old in zip(ours, theirs, strict=True)
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
