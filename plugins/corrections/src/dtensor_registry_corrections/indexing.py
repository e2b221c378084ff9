"""gather, and in-place forms that torch takes apart, where a tensor is written to."""

from __future__ import annotations

from typing import Any

from dtensor_registry import (
    Compute,
    Counterexample,
    Held,
    MoveFirst,
    PlacedCall,
    Refuse,
    SingleDimStrategy,
    amended,
)


def index_of_another_size(call: PlacedCall) -> MoveFirst | None:
    """Bring a tensor and an index of another size together before they are cut alike.

    On a dim that is not gathered along, the index may be shorter than the tensor: piece `i` of
    the one then does not belong to piece `i` of the other.
    """
    tensor, index = call.tensors["self"], call.tensors["index"]
    rank = len(tensor.shape)
    if rank == 0 or len(index.shape) != rank:
        return None
    along = call.arguments["dim"] % rank
    differing = [d for d in range(rank) if d != along and index.shape[d] != tensor.shape[d]]
    if not differing:
        return None
    moved: dict[str, Any] = {}
    for name, each in (("self", tensor), ("index", index)):
        # Cut along another dim, torch might yet prefer to cut it along one of these.
        wrong = {m for d in range(rank) if d != along for m in each.cuts(d)} | set(each.partials())
        if name == "self" and index.shape[along] != 1:
            wrong |= set(each.cuts(along))
        if wrong:
            moved[name] = each.replicated(*wrong)
    return MoveFirst(moved) if moved else None


def written_where_it_is(call: PlacedCall) -> Compute | Refuse | None:
    """Compute the result apart and copy it back, where torch would write to a moved copy."""
    target, index = call.tensors["self"], call.tensors["index"]
    added = call.tensors["source" if "source" in call.tensors else "src"]
    along = call.arguments["dim"] % max(len(target.shape), 1)
    if target.partials():
        return Refuse(
            "what it writes to is a pending reduction, and what it adds is not",
            "Redistribute it first:  x = x.redistribute(placements=[Replicate(), ...])",
        )
    whole = not index.cuts() and not index.partials()
    if whole and added.placements == target.placements and not target.cuts(along):
        return None
    return Compute(_computed_apart)


def _computed_apart(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the form of an op that writes nothing, and write its result where it belongs."""
    target = args[0]
    functional = str(op).split(".")[1].rstrip("_")
    result = getattr(target, functional)(*args[1:], **kwargs)
    target.copy_(result.redistribute(placements=target.placements))
    return target


_INDEX_ADD, _SCATTER_ADD = "aten.index_add_.default", "aten.scatter_add_.default"
_TABLE, _SHORTER = Held("float64", (4, 2)), Held("int64", [[0, 1], [1, 0]])
_WRITTEN, _AT, _ADDED = Held("float64", (4,)), Held("int64", [0, 3]), Held("float64", (2,))

INDEXING: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        "aten.gather.default",
        amended(
            index_of_another_size,
            because="a tensor and an index of another size are cut as if they were of one size",
        ),
        shows=(
            Counterexample("R, S(0)", (_TABLE, 1, _SHORTER)),
            Counterexample("S(0), R", (_TABLE, 1, _SHORTER)),
        ),
    ),
    SingleDimStrategy(
        [_INDEX_ADD, _SCATTER_ADD],
        amended(written_where_it_is, because="what is written to is moved, and the write is lost"),
        shows=(
            Counterexample("S(0), R, R", (_WRITTEN, 0, _AT, _ADDED), op=_INDEX_ADD),
            Counterexample("R, R, P(sum)", (_WRITTEN, 0, _AT, _ADDED), op=_INDEX_ADD),
            Counterexample(
                "S(0), R, R", (_WRITTEN, 0, _AT, _ADDED), op=_SCATTER_ADD, until="2.13.0"
            ),
            Counterexample(
                "S(0), R, R",
                (_WRITTEN, 0, _AT, _ADDED),
                op=_SCATTER_ADD,
                raises=True,
                since="2.14.1",
            ),
        ),
    ),
)
