"""torch's own rule for an op, without the rows of it that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import (
    Shard,
    ShardingPlaceholder,
    parse_placements,
    show_placements,
)
from dtensor_registry.rules.signature import Entry
from dtensor_registry.rules.strategy import rule_name

When: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], bool]
"""`when(op, args, kwargs)` says whether rows are wrong for a call; tensors come as metadata."""

CORRECTED_TABLE = "op_single_dim_strategy_funcs"
"""The table of torch's whose rules have rows; a rule for a whole mesh has none to leave out."""

_ARROW = "<-"


@dataclass(frozen=True, slots=True)
class WrongRows:
    """Rows of torch's rule for an op that are wrong, and why; build it with `wrong_rows`.

    Attributes:
        rows: as they print, `outputs <- inputs`; without what an `out=` argument has, which is
            placed as the output is.
        because: what is wrong with them, in a few words.
        when: says for which calls they are wrong; None: for all.
    """

    rows: tuple[str, ...]
    because: str
    when: When | None = None
    _entries: frozenset[tuple[Entry | None, ...]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidContributionError("wrong_rows() names no row; name at least one")
        object.__setattr__(self, "_entries", frozenset(map(_read, self.rows)))

    def holds(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Say whether the rows are wrong for a call."""
        return self.when is None or self.when(op, args, kwargs)

    def has(self, row: Sequence[Entry | None], written: int) -> bool:
        """Say whether a row is one of these.

        Args:
            row: as a rule returns it.
            written: how many of its last entries are `out=` arguments.

        >>> from dtensor_registry.placements import REPLICATE, Partial
        >>> wrong = wrong_rows("P(max) <- P(max), R", because="integers wrap around")
        >>> largest = Partial("max")
        >>> wrong.has([largest, largest, REPLICATE], 0)
        True
        >>> wrong.has([largest, largest, REPLICATE, largest], 1)
        True
        """
        return tuple(row[: len(row) - written]) in self._entries

    def __str__(self) -> str:
        condition = "" if self.when is None else f" in some calls ({rule_name(self.when)})"
        return f"{'; '.join(self.rows)}{condition}: {self.because}"


@dataclass(frozen=True, slots=True)
class Without:
    """A template that stands for torch's own rule without some of its rows; see `without`.

    The host binds it to torch's rule for the op that it is the rule of, so it is never called
    itself. All else stays torch's: the order of rows, how they are expanded, the cache key.

    Attributes:
        wrong: what is left out.
    """

    wrong: tuple[WrongRows, ...]

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """Refuse: a stand-in has no rows of its own."""
        raise InvalidContributionError(
            f"without(...) was asked for rows of {op} before it was bound to torch's rule; use it"
            " only as the rule of a strategy that is installed"
        )

    def in_force(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[WrongRows, ...]:
        """List what is wrong for a call."""
        return tuple(wrong for wrong in self.wrong if wrong.holds(op, args, kwargs))

    def __str__(self) -> str:
        return f"torch's rule without {len(self.wrong)} kind(s) of wrong rows"


def wrong_rows(*rows: str, because: str, when: When | None = None) -> WrongRows:
    """Name rows of torch's rule for an op that are wrong.

    Args:
        rows: `outputs <- inputs` on one mesh dim, as `explain` and `verify` print them. `S(0)`
            stands for any kind of cut of dim 0. What an `out=` argument has is left out. For an
            op over lists: the row of one element, `output <- inputs`, also where it writes.
        because: what is wrong with them, in a few words.
        when: says for which calls they are wrong, from the op and its arguments, where tensors
            are metadata; None: for all calls. What it reads must be in the op's cache key.

    Raises:
        PlacementSyntaxError: with a caret, for what is no placement.
        InvalidContributionError: for no rows, or for a text that is no row.

    >>> print(wrong_rows("P(max) <- P(max), R", because="integers wrap around"))
    P(max) <- P(max), R: integers wrap around
    """
    return WrongRows(rows, because, when)


def without(*wrong: WrongRows) -> Without:
    """Use torch's own rule, without rows of it that are wrong.

    Where torch has no such rule for an op, or the rule has no such row, there is nothing to
    leave out: torch keeps the op, and `doctor` says so.

    Args:
        wrong: what is left out; see `wrong_rows`. None: only the strategy's `schema_info` is to
            take the place of torch's.

    >>> print(without(wrong_rows("P(max) <- P(max), R", because="integers wrap around")))
    torch's rule without 1 kind(s) of wrong rows
    """
    return Without(wrong)


def _read(row: str) -> tuple[Entry | None, ...]:
    outputs, arrow, inputs = row.partition(_ARROW)
    if not arrow:
        raise InvalidContributionError(
            f"wrong_rows({row!r}): a row is written 'outputs {_ARROW} inputs', for example"
            f" 'P(sum) {_ARROW} P(sum), R'"
        )
    return (*_entries(outputs), *_entries(inputs))


def _entries(text: str) -> tuple[Entry | None, ...]:
    if text.strip() in ("", "()"):
        return ()
    return tuple(
        None if part.strip() == show_placements([None]) else _any_kind(*parse_placements(part))
        for part in _split(text)
    )


def _split(text: str) -> list[str]:
    """Split at the commas between placements, not at those inside of one."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _any_kind(placement: Entry) -> Entry:
    return ShardingPlaceholder(placement.tensor_dim) if isinstance(placement, Shard) else placement
