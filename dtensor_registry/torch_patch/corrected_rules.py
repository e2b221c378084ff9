"""torch's own rule for an op, without the rows that a plugin says are wrong.

Only the function in torch's entry changes: torch expands what is left as it would expand the
whole, or the host does where it expands torch's own rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch._ops import OpOverload

from dtensor_registry.discovery import Contribution, Origin
from dtensor_registry.errors import InstallError
from dtensor_registry.rules import Rule, Without, WrongRows
from dtensor_registry.rules.signature import seats
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry.torch_patch.catalog import SINGLE_DIM
from dtensor_registry.torch_patch.layers import Entry
from dtensor_registry.torch_patch.table_patcher import LEDGER, torch_schema_info
from dtensor_registry.torch_runtime.conversion import row_from_rule
from dtensor_registry.torch_runtime.decision import Decision
from dtensor_registry.torch_runtime.schema import facts, runtime_schema_info


@dataclass(frozen=True, slots=True)
class CorrectedRule:
    """One of torch's own single-dim rules, asked as it is; wrong rows are left out.

    Equal values answer alike, so what one of them answered can be used again for another.

    Attributes:
        func: torch's function, `(op, args, kwargs) -> rows`.
        without: what is wrong.
        origin: who says so.
    """

    func: Any
    without: Without
    origin: Origin

    def __call__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[list[Any]]:
        """Ask torch's rule and leave the wrong rows out."""
        rows = self.func(op, args, kwargs)
        wrong = self.without.in_force(op, args, kwargs)
        if not wrong:
            return list(rows)
        written = _written(op, args, kwargs)
        return [row for row in rows if not _is_any(wrong, row, written)]

    def left_out(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[str, WrongRows], ...]:
        """List the rows that a call does without, as they print, each with what is wrong."""
        wrong = self.without.in_force(op, args, kwargs)
        written = _written(op, args, kwargs)
        outputs = facts(op).signature.outputs
        found = []
        for row in self.func(op, args, kwargs):
            reason = next((each for each in wrong if each.has(row_from_rule(row), written)), None)
            if reason is not None:
                entries = row_from_rule(row)
                found.append((show_row(entries, len(entries) - outputs), reason))
        return tuple(found)


def left_out_of(decision: Decision) -> tuple[str, ...]:
    """List the rows of torch's rule that a call did without, and why."""
    rule, question = getattr(decision.rule, "func", None), decision.question
    if not isinstance(rule, CorrectedRule) or question is None:
        return ()
    found = rule.left_out(question.op, question.args_meta, question.kwargs_meta)
    return tuple(f"{row}: {wrong.because}" for row, wrong in found)


def corrected_entry(op: OpOverload, contribution: Contribution) -> Entry:
    """Make the entry of one op whose rule is torch's own without some rows.

    Raises:
        InstallError: if torch has no single-dim rule for it.
    """
    rule = corrected_rule(op, contribution)
    given = contribution.strategy.schema_info
    return Entry(
        replace(LEDGER.original(SINGLE_DIM, op), func=rule),
        torch_schema_info(op) if given is None else runtime_schema_info(op, given),
    )


def corrected_rule(op: OpOverload, contribution: Contribution) -> CorrectedRule:
    """Bind `without(...)` to torch's own rule.

    Raises:
        InstallError: if torch has no single-dim rule for the op.
    """
    info = LEDGER.original(SINGLE_DIM, op)
    without = contribution.strategy.rule
    assert isinstance(without, Without)
    if info is None:
        raise InstallError(
            f"torch has no single-dim rule for {op} that rows could be left out of.\n"
            f"  rule of {contribution.origin}"
        )
    return CorrectedRule(info.func, without, contribution.origin)


def as_rule_of(op: OpOverload, func: Rule) -> Rule:
    """Ask a rule of torch's as if it were asked for its own op."""

    def rule(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(op, args, kwargs)

    return rule


def _written(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """Count the `out=` arguments of a call."""
    return sum(seat.output is not None for seat in seats(args, kwargs, facts(op).signature))


def _is_any(wrong: Iterable[WrongRows], row: Sequence[Any], written: int) -> bool:
    entries = row_from_rule(row)
    return any(each.has(entries, written) for each in wrong)
