"""Ground truth for one row: run the op whole, run it in pieces, compare.

No process group and no DTensor: the ranks of a mesh are simulated one after the other
with plain tensors, each given the piece that the row says it holds.

    check_row(torch.ops.aten.mm.default, (x, y), {}, [Shard(0), Shard(0), REPLICATE], ranks=3)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import torch

from dtensor_registry.placements import Partial, Placements
from dtensor_registry.rules.metadata import tensor_inputs
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry_kit.simulation.compare import Difference, tolerance_of
from dtensor_registry_kit.simulation.layout import (
    Layout,
    cuts_a_group,
    lacks_data,
    layout_of,
    starved,
    too_small,
    unsimulated,
)
from dtensor_registry_kit.simulation.rebuild import output_difference, rebuild_difference
from dtensor_registry_kit.simulation.reference_run import (
    ReferenceRun,
    alike_memory,
    is_deterministic,
    run_reference,
)

HOLDS_NOTHING = "a rank would hold nothing of an input, which the op does not take"
"""Why a row is not tried on a mesh."""

Outcome: TypeAlias = Literal["sound", "unsound", "untested", "not applicable", "crash", "malformed"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ground truth says of one row (one per mesh dim) for one call.

    `sound` is the only outcome that speaks for a row. `untested` and `not applicable` say
    nothing about it, `unsound`, `crash` and `malformed` speak against it.

    Attributes:
        outcome: in one word.
        rows: the rows, printed, one per mesh dim.
        mesh: ranks per mesh dim.
        evidence: what was seen, in one sentence.
        untested: the outputs that agreed but are too plain to prove anything.
        worst: the largest difference of elements, where there was one.
        on_empty: whether a crash came from a rank that holds an empty piece.
    """

    outcome: Outcome
    rows: tuple[str, ...]
    mesh: tuple[int, ...]
    evidence: str = ""
    untested: tuple[int, ...] = ()
    worst: float | None = None
    on_empty: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether this speaks against the row."""
        return self.outcome in ("unsound", "crash", "malformed")

    def __str__(self) -> str:
        rows = " and ".join(self.rows)
        ranks = "x".join(map(str, self.mesh))
        describe_error = f": {self.evidence}" if self.evidence else ""
        return f"{self.outcome}: {rows} on {ranks} ranks{describe_error}"


@alike_memory()
def check_row(
    op: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    row: Sequence[Any],
    ranks: int,
    *,
    seed: int = 0,
    allow_empty: bool = False,
) -> Verdict:
    """Say whether a row is right for one call on a 1-D mesh of `ranks` ranks.

    Args:
        op: an overload, or any callable on tensors.
        args: positional arguments with whole, plain tensors.
        kwargs: keyword arguments.
        row: outputs first, then inputs; our placements or torch's public ones.
        ranks: size of the mesh.
        seed: of the addends that stand for partial inputs.
        allow_empty: also judge a row that shards a dim smaller than the mesh, where some
            ranks hold nothing; without it that is `not applicable`.

    >>> from dtensor_registry.placements import Shard
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    >>> print(check_row(torch.mul, (x, x), {}, [Partial()] * 3, 2).outcome)
    unsound
    >>> print(check_row(torch.mul, (x, x), {}, [Shard(1)] * 3, 2))
    sound: S(1) <- S(1), S(1) on 2 ranks
    """
    try:
        whole = run_reference(op, args, kwargs)
    except Exception as error:
        shown = show_row(row, len(tensor_inputs(args, kwargs)))
        return Verdict(
            "untested",
            (shown,),
            (ranks,),
            f"the op raises on whole tensors: {describe_error(error)}",
        )
    return judge(whole, [row], (ranks,), seed=seed, allow_empty=allow_empty)


def judge(
    whole: ReferenceRun,
    rows: Sequence[Sequence[Any]],
    mesh: tuple[int, ...],
    *,
    seed: int = 0,
    allow_empty: bool | None = False,
) -> Verdict:
    """Say whether rows, one per mesh dim, are right for a call; see `check_row`.

    With None for `allow_empty` no rank may hold nothing of an input.

    >>> import torch
    >>> from dtensor_registry import Partial, ShardingPlaceholder
    >>> from dtensor_registry_kit import run_reference
    >>> x = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    >>> cut_rows, cut_columns = [ShardingPlaceholder(0)] * 3, [ShardingPlaceholder(1)] * 3
    >>> whole = run_reference(torch.ops.aten.mul.Tensor, (x, x))
    >>> print(judge(whole, [cut_rows, cut_columns], (2, 2)))
    sound: S(0) <- S(0), S(0) and S(1) <- S(1), S(1) on 2x2 ranks
    >>> judge(whole, [[Partial()] * 3], (2,)).outcome
    'unsound'
    """
    shown = tuple(show_row(row, len(whole.inputs)) for row in rows)
    layout = layout_of(whole, rows)
    if isinstance(layout, str):
        return Verdict("malformed", shown, mesh, layout)
    reason = unsimulated(layout) or cuts_a_group(layout, mesh)
    if reason is not None:
        return Verdict("not applicable", shown, mesh, reason)
    try:
        given = [
            whole.pieces(position, placements, mesh, seed)
            for position, placements in enumerate(layout.inputs)
        ]
    except NotImplementedError as error:  # a partial of a kind that the dtype cannot have
        return Verdict("not applicable", shown, mesh, str(error))
    if allow_empty is None and any(lacks_data(whole, given, rank) for rank in range(prod(mesh))):
        return Verdict("not applicable", shown, mesh, HOLDS_NOTHING)
    if not allow_empty:
        reason = too_small(whole, layout, mesh)
        if reason is not None:
            hunger = starved(whole, layout, mesh, given)
            if hunger is not None:
                return Verdict("unsound", shown, mesh, hunger)
            return Verdict("not applicable", shown, mesh, reason)
    results: list[tuple[Any, ...]] = []
    for rank in range(prod(mesh)):
        try:
            result = whole.run([pieces[rank] for pieces in given])
        except Exception as error:
            shapes = ", ".join(str(tuple(pieces[rank].shape)) for pieces in given)
            evidence = f"rank {rank} with local shapes {shapes} raises {describe_error(error)}"
            lacks = lacks_data(whole, given, rank)
            on_empty = lacks and starved(whole, layout, mesh, given) is None
            return Verdict("crash", shown, mesh, evidence, on_empty=on_empty)
        if len(result) != len(whole.outputs):
            evidence = f"rank {rank} returns {len(result)} outputs, whole run {len(whole.outputs)}"
            return Verdict("unsound", shown, mesh, evidence)
        results.append(result)
    found = _compare(whole, layout, mesh, results, given)
    if found is not None:
        where, gap = found
        if not is_deterministic(whole):
            return Verdict("untested", shown, mesh, "the op gives another result when run again")
        return Verdict("unsound", shown, mesh, f"{where} {gap}", worst=gap.worst)
    return _agreed(whole, layout, mesh, results, shown)


def _agreed(
    whole: ReferenceRun,
    layout: Layout,
    mesh: tuple[int, ...],
    results: Sequence[Sequence[Any]],
    shown: tuple[str, ...],
) -> Verdict:
    """Nothing differs: say whether that proves anything."""
    untested = tuple(
        index
        for index, is_plain in enumerate(whole.is_plain)
        if is_plain and not _was_put_together([r[index] for r in results], layout.outputs[index])
    )
    if untested:
        outputs = ", ".join(map(str, untested))
        message = f"output {outputs} of the whole run is empty, all zero or all the same"
        return Verdict("untested", shown, mesh, message, untested)
    if not whole.tensor_outputs and not whole.mutated:
        return Verdict("untested", shown, mesh, "the op returns no tensor and writes to none")
    return Verdict("sound", shown, mesh)


def _was_put_together(got: Sequence[Any], placements: Placements | None) -> bool:
    """Say whether a plain output was reduced from unequal parts, which is proof all the same."""
    if placements is None or not any(isinstance(p, Partial) for p in placements):
        return False
    return any(not torch.equal(part, got[0]) for part in got[1:])


def _compare(
    whole: ReferenceRun,
    layout: Layout,
    mesh: tuple[int, ...],
    results: Sequence[Sequence[Any]],
    given: Sequence[Sequence[torch.Tensor]],
) -> tuple[str, Difference] | None:
    relative = tolerance_of(whole.operands, whole.tensor_outputs)
    for index, want in enumerate(whole.outputs):
        got = [result[index] for result in results]
        if whole.op == torch.ops.aten.equal.default:
            got = [all(got)] * len(got)  # as DTensor does, for this op and no other
        found = output_difference(got, want, layout.outputs[index], mesh, relative)
        if found is not None:
            return f"output {index}{found[0]}", found[1]
    returned = {position for _, position in whole.tied}
    for position, want in whole.mutated.items():
        if position in returned:  # was compared as the output that it is
            continue
        found = rebuild_difference(given[position], want, layout.inputs[position], mesh, relative)
        if found is not None:
            return f"input {position}, which the op writes to,{found[0]}", found[1]
    return None


def describe_error(error: Exception) -> str:
    """Quote an exception on one line.

    >>> describe_error(KeyError("dim"))
    "KeyError: 'dim'"
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
