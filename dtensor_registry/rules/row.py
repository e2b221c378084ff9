"""Rows by the names of arguments, and rules put together from rows and other rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import (
    REPLICATE,
    Shard,
    ShardingPlaceholder,
    parse_placements,
    show_placements,
)
from dtensor_registry.rules.signature import Entry, RuleOf, Signature, bind, seated, seats
from dtensor_registry.rules.strategy import MAX_ROWS, Rule, rule_name

OUT = "out"
"""The name under which a row speaks of outputs."""


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A rule of one row, by the names of arguments; build it with `row`.

    Attributes:
        outputs: one placement per tensor output.
        inputs: the placement of each tensor argument that is named, sorted by name; all others
            stay whole. A list argument has it for each of its elements.
        signature: of the op that it is bound to, if any; no part of its value.
    """

    outputs: tuple[Entry, ...]
    inputs: tuple[tuple[str, Entry], ...]
    signature: Signature | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        everything = (*self.outputs, *(entry for _, entry in self.inputs))
        if all(entry == REPLICATE for entry in everything):
            raise InvalidContributionError(
                f"{self} says nothing: that everything may be whole is implied for every op"
            )
        for entry in everything:
            if isinstance(entry, ShardingPlaceholder) and entry.dim < 0:
                raise InvalidContributionError(
                    f"{self}: S({entry.dim}) counts from the end; a row counts dims from 0"
                )

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Entry]]:
        """Return the row for one call.

        Raises:
            InvalidContributionError: before it is bound to an op.
        """
        if self.signature is None:
            raise InvalidContributionError(
                f"{self} was asked for rows before it was bound to an op, so it does not know where"
                " its arguments stand; use it as the rule of a strategy that is installed"
            )
        entries = dict(self.inputs)
        places = seats(args, kwargs, self.signature)
        names = self.signature.operands
        placed = {
            seat.name: entries.get(names[seat.operand], REPLICATE)
            for seat in places
            if seat.operand is not None
        }
        return [seated(self.outputs, places, placed)]

    def bound(self, signature: Signature, rule_of: RuleOf) -> NamedRow:
        """Bind it to an op.

        Raises:
            InvalidContributionError: if it names what is no tensor argument of the op, or places
                another number of outputs.
        """
        inputs = []
        for name, entry in self.inputs:
            parameter = signature.parameter(name)
            if parameter is None or parameter.name not in signature.operands:
                raise InvalidContributionError(
                    f"{self}: {signature} has no tensor argument {name!r}; it has"
                    f" {', '.join(signature.operands) or 'none'}"
                )
            inputs.append((parameter.name, entry))
        if len(self.outputs) != signature.outputs:
            wanted = ", ".join(["S(0)"] * signature.outputs)
            advice = f'write {OUT}="{wanted}" or the like' if wanted else f"leave {OUT!r} out"
            raise InvalidContributionError(
                f"{self} places {len(self.outputs)} output(s), but {signature.op} returns"
                f" {signature.outputs}; {advice}"
            )
        return replace(self, inputs=tuple(inputs), signature=signature)

    def __str__(self) -> str:
        said = [(OUT, show_placements(map(_shown, self.outputs)))] if self.outputs else []
        said += [(name, show_placements([_shown(entry)])) for name, entry in self.inputs]
        return f"row({', '.join(f'{name}={chr(34)}{text}{chr(34)}' for name, text in said)})"


def row(**placements: str) -> NamedRow:
    """Build a rule of one row, by the names of the op's arguments.

    Args:
        placements: `out="S(0)"`, or `out="S(0), R"` for an op with two outputs; then the
            placement of each tensor argument by its name. An argument that is left out stays
            whole. `S(0)` means cut on dim 0 in whatever kind of sharding the inputs have, and
            `S(0)/8` that dim 0 holds 8 groups, which must not be cut.

    Raises:
        PlacementSyntaxError: with a caret, for what is no placement.
        InvalidContributionError: if everything is whole, which is implied, or an input has
            several placements: a row is about one mesh dim.

    >>> print(row(w="R", x="S(0)", out="S(0)"))
    row(out="S(0)", w="R", x="S(0)")
    """
    parsed = {name: tuple(map(_read, parse_placements(text))) for name, text in placements.items()}
    outputs = parsed.pop(OUT, ())
    for name, entries in parsed.items():
        if len(entries) > 1:
            raise InvalidContributionError(
                f'row({name}="{placements[name]}"): a row is about one mesh dim, on which a tensor'
                " has one placement; the host puts rows together for more"
            )
    return NamedRow(outputs, tuple((name, entry) for name, (entry,) in sorted(parsed.items())))


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of several rules, each once, in the order of the rules; build it with `rows`.

    Attributes:
        parts: the rules.
    """

    parts: tuple[Rule, ...]

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the rows for one call."""
        found: dict[Any, Any] = {}
        for part in self.parts:
            # One row too many is found by whoever asked; a part may have no end.
            for listed in islice(part(op, args, kwargs), MAX_ROWS + 1):
                found.setdefault(tuple(listed), listed)
        return list(found.values())

    def bound(self, signature: Signature, rule_of: RuleOf) -> Rows:
        """Bind each part to an op.

        Raises:
            InvalidContributionError: if one does not fit it.
        """
        return Rows(tuple(bind(part, signature, rule_of) for part in self.parts))

    def __str__(self) -> str:
        return f"rows({', '.join(rule_name(part) for part in self.parts)})"


def rows(*parts: Rule) -> Rows:
    """Put rules together: an op may do what any of them says.

    Args:
        parts: rows by name, other templates, functions.

    Raises:
        InvalidContributionError: for something that is no rule.

    >>> from dtensor_registry.rules import einsum
    >>> print(rows(einsum("mk,kn->mn"), row(out="P(max)", x="P(max)")))
    rows(einsum(mk,kn->mn), row(out="P(max)", x="P(max)"))
    """
    flat: list[Rule] = []
    for part in parts:
        if not callable(part):
            raise InvalidContributionError(f"rows(...): {part!r} is no rule; write row(...)")
        flat += part.parts if isinstance(part, Rows) else (part,)
    return Rows(tuple(flat))


def _read(placement: Entry) -> Entry:
    return ShardingPlaceholder(placement.tensor_dim) if isinstance(placement, Shard) else placement


def _shown(entry: Entry) -> Entry:
    if isinstance(entry, ShardingPlaceholder) and entry.groups is None:
        return Shard(entry.dim)
    return entry
