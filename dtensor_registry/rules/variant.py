"""The rule of an op, for another form of it that writes what it would return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtensor_registry.rules.signature import Signature, seated, seats
from dtensor_registry.rules.strategy import Rule


@dataclass(frozen=True, slots=True)
class Variant:
    """The rule of an in-place or `out=` form, derived from that of the form that returns.

    What the op writes to is placed as the output that is written there. A row whose output is
    placed otherwise than the argument that it overwrites is left out: a write has no place.

    Attributes:
        rule: of the form that returns.
        base: that form, which the rule is asked about.
        signature: of the form that writes.
        overwritten: the argument that an in-place form writes to.
    """

    rule: Rule
    base: Any
    signature: Signature
    overwritten: str | None = None

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the rows for one call of the form that writes."""
        places = seats(args, kwargs, self.signature)
        operands = [seat.name for seat in places if seat.output is None]
        written = {p.name for p in self.signature.parameters if p.output is not None}
        rows = []
        for row in self.rule(
            self.base, args, {k: v for k, v in kwargs.items() if k not in written}
        ):
            if not isinstance(row, (list, tuple)) or len(row) < len(operands):
                rows.append(row)  # the host says what is wrong with it
                continue
            split = len(row) - len(operands)
            outputs, entries = list(row[:split]), dict(zip(operands, row[split:], strict=True))
            if self.overwritten is not None and any(
                output != entries.get(self.overwritten) for output in outputs
            ):
                continue
            rows.append(seated(outputs if self.signature.outputs else [], places, entries))
        return rows
