"""One correction as data: the rows, why they are wrong, and the smallest calls that show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtensor_registry import Counterexample, WrongRows, wrong_rows


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows of torch's that are wrong for one or more ops.

    Attributes:
        ops: overloads that share the rule's rows.
        rows: as torch's rule for the first op returns them.
        because: what is wrong, in a few words.
        examples: one for each row, for the first op.
        when: says for which calls; its docstring says it in words. None: for all.
        schema_info: what is in the cache key, where torch's own key lacks what `when` reads.
        reduces: partial operands are reduced before torch is asked, since torch 2.13 has no rows
            for the op but a rule for the whole mesh, which is wrong in the same way.
    """

    ops: tuple[str, ...]
    rows: tuple[str, ...]
    because: str
    examples: tuple[Counterexample, ...]
    when: Callable[[Any, tuple[Any, ...], dict[str, Any]], bool] | None = None
    schema_info: Any = None
    reduces: bool = False

    @property
    def condition(self) -> str:
        """Say in words for which calls the rows are wrong."""
        return "always" if self.when is None else f"if {self.when.__doc__}"

    def wrong(self) -> WrongRows:
        """Write it for `without`."""
        return wrong_rows(*self.rows, because=self.because, when=self.when)
