"""Reductions that have no value on an empty piece, and functions of a pending maximum."""

from __future__ import annotations

from typing import Any

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    MoveFirst,
    Partial,
    PlacedCall,
    PlacedTensor,
    SingleDimStrategy,
    amended,
)
from dtensor_registry_corrections.all_dims import (
    or_over_all_dims,
    over_all_dims,
    shows_all_dims,
)

EXTREMES: dict[str, tuple[Any, ...]] = {
    "aten.amax.default": ([0],),
    "aten.amin.default": ([0],),
    "aten.argmax.default": (),
    "aten.argmin.default": (),
    "aten.max.default": (),
    "aten.min.default": (),
}
"""Reductions of a tensor that holds something, and arguments that make them reduce dim 0."""

NORMS = ("aten.linalg_vector_norm.default", "aten.norm.Scalar")

FOURIER = ("aten._fft_r2c.default",)  # complex numbers have no largest: none is pending


def extreme_of_an_empty_piece(call: PlacedCall) -> Compute | MoveFirst | None:
    """Gather a tensor of which some rank would have nothing to reduce.

    That rank would raise alone, and the others would wait for it.
    """
    if call.arguments.get("keepdim") and (named := over_all_dims(call)):
        return named
    tensor = call.tensors["self"]
    wrong = _empty_where_reduced(tensor, call.arguments.get("dim"))
    return MoveFirst({"self": tensor.replicated(*wrong)}) if wrong else None


def norm_of_empty_or_pending(call: PlacedCall) -> MoveFirst | None:
    """Gather what has no norm on an empty piece; reduce what is a maximum before its size counts.

    The largest absolute value of a pending maximum is not the maximum of the ranks' largest
    absolute values: a rank may hold a large negative number that another one outdoes.
    """
    tensor = call.tensors["self"]
    order = call.arguments.get("ord", call.arguments.get("p"))
    wrong = set(_pending_extremes(tensor))
    # Of nothing there is neither a largest value nor a sum of inverse powers.
    if isinstance(order, (int, float)) and (order < 0 or order == float("inf")):
        wrong |= set(_empty_where_reduced(tensor, call.arguments.get("dim")))
    return MoveFirst({"self": tensor.replicated(*wrong)}) if wrong else None


def transform_of_an_extreme(call: PlacedCall) -> MoveFirst | None:
    """Reduce a pending maximum or minimum before a transform, which mixes elements."""
    tensor = call.tensors["self"]
    wrong = _pending_extremes(tensor)
    return MoveFirst({"self": tensor.replicated(*wrong)}) if wrong else None


def _empty_where_reduced(tensor: PlacedTensor, dim: object) -> tuple[int, ...]:
    """List the mesh dims that cut a dim that is reduced so finely that a rank has nothing."""
    rank = len(tensor.shape)
    dims = [dim] if isinstance(dim, int) else dim if isinstance(dim, (list, tuple)) else []
    reduced = {d % rank for d in dims} if rank and dims else set(range(rank))
    return tuple(
        mesh_dim
        for d in sorted(reduced)
        if tensor.shape[d] > 0 and 0 in tensor.piece_sizes(d)
        for mesh_dim in tensor.cuts(d)
    )


def _pending_extremes(tensor: PlacedTensor) -> tuple[int, ...]:
    return tuple(
        mesh_dim
        for mesh_dim, placement in enumerate(tensor.placements)
        if placement in (Partial("max"), Partial("min"))
    )


_ROW = Held("float64", (1, 2))
_FOUR = Held("float64", (4,))

REDUCTIONS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        [*EXTREMES, "aten.aminmax.default"],
        amended(
            extreme_of_an_empty_piece,
            because="a rank without data raises alone, and the others wait for it",
        ),
        shows=(
            *(
                Counterexample("S(0)", (_ROW, *options), op=op, raises=True)
                for op, options in EXTREMES.items()
            ),
            # For it torch cuts no dim that is smaller than the mesh; of 4 the last of 3 has none.
            Counterexample("S(0)", (_FOUR,), op="aten.aminmax.default", raises=True, ranks=3),
            shows_all_dims("aten.amin.default"),
        ),
    ),
    SingleDimStrategy(
        list(NORMS),
        amended(
            or_over_all_dims(norm_of_empty_or_pending),
            because="a norm is taken of an empty piece, or of a maximum that is yet to be found",
        ),
        shows=(
            Counterexample("S(0)", (_ROW, float("inf")), raises=True),
            Counterexample("P(max)", (Held("float64", -8.0, 1.0), float("inf"))),
            shows_all_dims("aten.linalg_vector_norm.default"),
        ),
    ),
    SingleDimStrategy(
        list(FOURIER),
        amended(
            transform_of_an_extreme,
            because="a transform is taken of a maximum that is yet to be found",
        ),
        shows=(
            Counterexample(
                "P(max)",
                (Held("float64", [1.0, 4.0], [2.0, 3.0]), [0], 0, True),
                raises=True,
            ),
        ),
    ),
)
