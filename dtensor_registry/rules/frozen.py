"""A rule written down case by case: which rows hold for which ranks and which arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules.metadata import is_tensor
from dtensor_registry.rules.row import NamedRow
from dtensor_registry.rules.signature import RuleOf, Signature


@dataclass(frozen=True, slots=True)
class Case:
    """Rows, and the calls that they are for; build it with `case`.

    Attributes:
        rows: for these calls.
        when: what the calls have in common: for a tensor argument how many dims it has, None if
            it is left out; for any other its value. Sorted by name.
    """

    rows: tuple[NamedRow, ...]
    when: tuple[tuple[str, Any], ...]

    def holds(self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Say whether a call is one of this case."""
        return all(
            is_same(seen_of(signature.argument(name, args, kwargs)), wanted)
            for name, wanted in self.when
        )

    def __str__(self) -> str:
        when = "".join(f", {name}={value!r}" for name, value in self.when)
        listed = "".join(f"\n        {row}," for row in self.rows)
        return f"case([{listed}\n    ]{when})" if listed else f"case([]{when})"


@dataclass(frozen=True, slots=True)
class Frozen:
    """The rule that has the rows of the first case that holds; build it with `frozen`.

    A call of no case has no rows, so everything stays whole.

    Attributes:
        cases: in order.
        signature: of the op that it is bound to, if any; no part of its value.
    """

    cases: tuple[Case, ...]
    signature: Signature | None = field(default=None, compare=False, repr=False)

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the rows for one call.

        Raises:
            InvalidContributionError: before it is bound to an op.
        """
        if self.signature is None:
            raise InvalidContributionError(
                f"a frozen rule was asked for rows of {op} before it was bound to an op, so it does"
                " not know where its arguments stand; use it as the rule of a strategy that is"
                " installed"
            )
        for case in self.cases:
            if case.holds(self.signature, args, kwargs):
                return [entry for row in case.rows for entry in row(op, args, kwargs)]
        return []

    def bound(self, signature: Signature, rule_of: RuleOf) -> Frozen:
        """Bind it to an op.

        Raises:
            InvalidContributionError: if it speaks of an argument that the op does not have.
        """
        for case in self.cases:
            for name, _ in case.when:
                if signature.parameter(name) is None:
                    raise InvalidContributionError(
                        f"case(..., {name}=...): {signature} has no argument {name!r}"
                    )
        cases = tuple(
            replace(case, rows=tuple(row.bound(signature, rule_of) for row in case.rows))
            for case in self.cases
        )
        return Frozen(cases, signature)

    def __str__(self) -> str:
        return f"frozen({''.join(f'{chr(10)}    {case},' for case in self.cases)}{chr(10)})"


def case(rows: Iterable[NamedRow], **when: Any) -> Case:
    """Write down the rows for some calls.

    Args:
        rows: by the names of arguments.
        when: what these calls have in common: for a tensor argument how many dims it has, or
            None where it is left out; for any other its value.
    """
    return Case(tuple(rows), tuple(sorted((name, _plain(value)) for name, value in when.items())))


def frozen(*cases: Case) -> Frozen:
    """Build a rule from cases; `derive` writes them.

    >>> from dtensor_registry.rules import row
    >>> print(frozen(case([row(out="S(0)", x="S(0)")], x=2, dim=1)))
    frozen(
        case([
            row(out="S(0)", x="S(0)"),
        ], dim=1, x=2),
    )
    """
    return Frozen(cases)


def seen_of(value: Any) -> Any:
    """Reduce an argument to what a case says of it."""
    return len(value.shape) if is_tensor(value) else _plain(value)


def is_same(value: Any, wanted: Any) -> bool:
    """Compare two values, telling 1 from True.

    >>> is_same(True, 1), is_same((1, 2), (1, 2))
    (False, True)
    """
    return type(value) is type(wanted) and bool(value == wanted)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(seen_of(entry) for entry in value)
    return value
