"""Views of tensors without elements, of which torch's rule looks for groups of dims for ever."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch.distributed.tensor import DTensor, Replicate

from dtensor_registry import Compute, Counterexample, Held, PlacedCall, SingleDimStrategy, amended


def view_of_nothing(call: PlacedCall) -> Compute | None:
    """View a whole tensor on each rank, of which there is nothing to move.

    Where the size of 0 stays between dims of as many elements as before, torch is right.
    """
    shape = call.tensors["self"].shape
    if 0 not in shape:
        return None
    size = [0 if length == -1 else length for length in call.arguments["size"]]
    return None if _around(shape) == _around(size) else Compute(_whole_view)


def _around(shape: Sequence[int]) -> tuple[int, int]:
    """Count the elements of the dims before the first size of 0, and after it."""
    at = list(shape).index(0)
    return prod(shape[:at]), prod(shape[at + 1 :])


def _whole_view(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, size = args
    mesh = tensor.device_mesh
    whole = [Replicate()] * mesh.ndim
    local = tensor.to_local().new_empty(tensor.shape).view(size)
    return DTensor.from_local(local, mesh, whole, run_check=False)


VIEWS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        ["aten.view.default", "aten._unsafe_view.default"],
        amended(
            view_of_nothing,
            because="torch looks for dims of as many elements, and beside a size of 0 for ever",
        ),
        shows=(Counterexample("S(1)", (Held("float64", (4, 0)), [4, 0, 2]), hangs=True),),
    ),
)
