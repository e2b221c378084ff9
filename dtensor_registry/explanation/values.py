"""An explanation: everything about the sharding of one call, in text and numbers.

Nothing here computes. `str()` prints it, and `ExplanationReport` is the same as a pydantic
model: its JSON schema is published as docs/explanation.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import RootModel

Placed = tuple[str, ...]
"""A tensor's placements in the notation, one per mesh dim: `("S(0)", "R")`."""

Decider = Literal[
    "rule", "torch rule", "torch", "decomposition", "composite", "fallback", "handler", "nobody"
]
"""Who gives the answer: a plugin's rule; torch's single-dim rule, expanded by the host; torch's
own path; its decomposition; the parts that torch takes a composite op into; a fallback; a
handler of torch's; nobody."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One that has something to say about an op, in the order in which they are asked.

    Attributes:
        name: the plugin, `torch`, or what else it is.
        distribution: who ships it; empty for torch and for this process.
        version: of the distribution.
        source: file and line of the rule, or the table of torch's.
        rule: the rule as it prints.
        decides: whether it is the one that is asked.
        reason: why it decides, or why it lost.
    """

    name: str
    distribution: str
    version: str
    source: str
    rule: str
    decides: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Piece:
    """What one rank holds of a tensor.

    Attributes:
        rank: position in the mesh, row by row.
        coordinate: the rank's position on each mesh dim.
        offset: where the piece begins in the whole tensor.
        shape: the piece's shape.
    """

    rank: int
    coordinate: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorShown:
    """An input or an output.

    Attributes:
        name: the argument, or `output 0`.
        dtype: short: `f32`.
        shape: of the whole tensor.
        placements: on each mesh dim.
        local_shape: what rank 0 holds.
        pieces: what the first ranks hold.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    placements: Placed
    local_shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of placement on one mesh dim.

    Attributes:
        mesh_dim: its name, or its number where it has none.
        source: the placement before.
        target: the placement after.
        collective: what is communicated; `chunk` and `partition` are local.
        nbytes: bytes that a rank holds on the larger side; None where only torch can tell.
        microseconds: the estimate; None where only torch can tell, or for no way at all.
    """

    mesh_dim: str
    source: str
    target: str
    collective: str
    nbytes: float | None
    microseconds: float | None


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one input.

    Attributes:
        source: its placements.
        target: the placements that the op runs on.
        microseconds: the estimate in all; None if torch gives no finite one.
        steps: in the order in which torch takes them; none for an input that stays.
    """

    source: Placed
    target: Placed
    microseconds: float | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run the call.

    Attributes:
        outputs: placements of each output; None for one that is no tensor.
        inputs: placements of each tensor input.
        microseconds: the estimate of its communication; None if torch gives no finite one.
        rows: the row taken on each mesh dim; empty where there are no rows.
        moves: what becomes of each input.
    """

    outputs: tuple[Placed | None, ...]
    inputs: tuple[Placed, ...]
    microseconds: float | None
    rows: tuple[int, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A combination of rows that is not valid for the call, and why."""

    outputs: tuple[Placed | None, ...]
    inputs: tuple[Placed, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """An op that ran in place of the one that was called, or inside it.

    Attributes:
        op: the overload.
        calls: how many.
        decided_by: a plugin, `torch`, `decomposition`, and so on.
        placements: the distinct choices, as `outputs <- inputs`, one tensor per `;`.
    """

    op: str
    calls: int
    decided_by: str
    placements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The answer to a question for one choice: what it would cost, or what stops it."""

    asked: str
    answer: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a call is sharded as it is.

    Attributes:
        op: the overload.
        providers: who has something to say about the op, first to last.
        decided_by: who decides, in a few words.
        decider: what kind of answer it is.
        arguments: those that are no tensors.
        mesh_shape: ranks on each mesh dim, outermost first; empty if only the op was asked for.
        mesh_dims: name of each mesh dim, its number where it has none.
        inputs: the tensors that come in, in row order.
        rows: on one mesh dim, `outputs <- inputs`; those of the first element for an op over
            lists.
        candidates: valid choices, cheapest first; some of them, see `valid`.
        rejected: combinations of rows that are not valid; some of them, see `invalid`.
        valid: how many choices are valid; None if they were not counted.
        invalid: how many combinations are not.
        chosen: what is done; None if nothing is, or if torch does not say.
        outputs: what comes out; empty if nothing does, or if no shape is known beforehand.
        collectives: what ran on this rank, by kind, as the CPU's process group has them.
        parts: other ops that ran.
        executed: whether the host runs the op itself, see docs/design-notes.md.
        error: what the call raises, or None.
        notes: what else there is to know.
        why_not: answers to questions.
    """

    op: str
    providers: tuple[Provider, ...]
    decided_by: str
    decider: Decider = "nobody"
    arguments: str = ""
    mesh_shape: tuple[int, ...] = ()
    mesh_dims: tuple[str, ...] = ()
    inputs: tuple[TensorShown, ...] = ()
    rows: tuple[str, ...] = ()
    candidates: tuple[Choice, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    valid: int | None = None
    invalid: int | None = None
    chosen: Choice | None = None
    outputs: tuple[TensorShown, ...] = ()
    collectives: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    executed: bool = False
    error: str | None = None
    notes: tuple[str, ...] = ()
    why_not: tuple[WhyNot, ...] = ()

    def __str__(self) -> str:
        from dtensor_registry.explanation.text import lines_of

        return "\n".join(lines_of(self))

    def to_json(self) -> str:
        """Write it as JSON; docs/explanation.schema.json says what is in it."""
        return ExplanationReport(self).model_dump_json(indent=2)


class ExplanationReport(RootModel[Explanation]):
    """What `explain --json` prints."""
