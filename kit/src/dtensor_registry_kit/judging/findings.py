"""What a check found, as values that print themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "raises",
    "malformed",
    "unsound",
    "crash",
    "backward",
    "dispatch",
    "cache key",
    "changes",
    "impure",
    "missing",
    "vacuous",
    "dead",
    "duplicate",
    "untested",
    "crash on empty",
]

_MEANING: dict[Kind, str] = {
    "raises": "the rule raised when it was asked for rows",
    "malformed": "what the rule returned is no row of placements for this op",
    "unsound": "a row gives another result than the whole run",
    "crash": "the op raises on the pieces that a row hands out",
    "backward": "a row gives other gradients than the whole run",
    "dispatch": "DTensor, with this rule in force, gives another result than the whole run",
    "cache key": "an argument changes the rows, but is not in the cache key",
    "changes": "the same question got two answers",
    "impure": "the rule changed its arguments",
    "missing": "a row that ground truth allows is not offered",
    "vacuous": "the rule never shards, although it could",
    "dead": "a row was applicable to no sample",
    "duplicate": "a row is offered twice",
    "untested": "no sample could prove or refute a row",
    "crash on empty": "the op raises on a rank that holds an empty piece",
}
"""Every kind of finding, and what it says."""

NO_ROWS = "rows were not judged, only calls on DTensors"
"""How a note begins of a rule whose rows cannot be judged one by one."""

KINDS = tuple(_MEANING)
"""Every kind, in the order in which a report lists them."""

ERRORS: frozenset[Kind] = frozenset(
    {
        "raises",
        "malformed",
        "unsound",
        "crash",
        "backward",
        "dispatch",
        "cache key",
        "changes",
        "impure",
    }
)
"""Kinds that make a rule one not to be trusted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    Attributes:
        kind: what is the matter; `ERRORS` holds those that make a rule wrong.
        evidence: what was seen.
        about: the row, printed, or the argument; empty if it is about the rule as a whole.
        sample: the call in which it was seen, printed.
        program: a few lines of Python that show it again on one CPU; empty if no op ran.
        times: in how many calls it was seen.
        saves: microseconds that a missing row would save, see `complete`.
    """

    kind: Kind
    evidence: str
    about: str = ""
    sample: str = ""
    program: str = ""
    times: int = 1
    saves: float = 0.0

    @property
    def is_error(self) -> bool:
        """Whether this makes the rule wrong, rather than less useful or less sure."""
        return self.kind in ERRORS

    def __str__(self) -> str:
        again = f"  (seen {self.times} times)" if self.times > 1 else ""
        lines = [f"{self.kind}: {self.about or _MEANING[self.kind]}{again}"]
        if self.sample:
            lines.append(f"  call  {self.sample}")
        lines.append(f"  seen  {self.evidence}")
        if self.program:
            lines.append("  To see it again:")
            lines += [f"      {line}" for line in self.program.splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `check` found about one rule for one op.

    Attributes:
        op: name of the op.
        owner: who wrote the rule.
        rule: the rule, printed.
        findings: errors first.
        sound: the rows that ground truth proved, printed.
        samples: how many samples, with their variants, the op accepted.
        combinations: how many times a row was judged on a mesh.
    """

    op: str
    owner: str
    rule: str
    findings: tuple[Finding, ...]
    sound: tuple[str, ...]
    samples: int
    combinations: int

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the rule wrong."""
        return tuple(finding for finding in self.findings if finding.is_error)

    @property
    def is_trusted(self) -> bool:
        """Whether nothing is wrong, and calls could show it of some row, if there are any."""
        shown = bool(self.sound) or not self.of_kind("untested")
        return not self.errors and self.samples > 0 and shown

    def of_kind(self, kind: Kind) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def __str__(self) -> str:
        counts = Counter(finding.kind for finding in self.findings)
        message = ", ".join(f"{counts[kind]} {kind}" for kind in _MEANING if counts[kind])
        state = "trusted" if self.is_trusted else "WRONG" if self.errors else "NOT CHECKED"
        lines = [
            f"{self.op}: {state}{f' ({message})' if message else ''}",
            f"  rule {self.rule} of {self.owner}",
            f"  {len(self.sound)} rows proven in {self.combinations} combinations of"
            f" {self.samples} calls",
        ]
        for finding in self.findings:
            lines += [f"  {line}" for line in str(finding).splitlines()]
        return "\n".join(lines)
