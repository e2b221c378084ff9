"""Keep count of what was seen of each row, and one finding of each kind about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dtensor_registry_kit.isolation import Note, silent
from dtensor_registry_kit.judging.findings import KINDS, Finding, Kind
from dtensor_registry_kit.judging.judge import Verdict


@dataclass(slots=True)
class _Seen:
    """What was seen of one row.

    Attributes:
        applied: whether it was applicable at least once.
        plain: outputs that no verdict has yet put to the test; None before the first one.
        why: why it proved nothing so far.
        sample: the first call that it was offered for.
    """

    sample: str
    applied: bool = False
    plain: frozenset[int] | None = None
    why: str = ""


@dataclass(slots=True)
class Collector:
    """Everything seen while one rule is checked; grows, and is read at the end.

    >>> collector = Collector()
    >>> collector.count(Verdict("sound", ("R <- R",), (2,)), "R <- R", "f32[4]")
    >>> collector.sound()
    ('R <- R',)
    """

    samples: int = 0
    combinations: int = 0
    note: Note = silent
    _findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    _rows: dict[str, _Seen] = field(default_factory=dict)
    _wrong: set[str] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Take in a finding; the first of a kind about a thing stands for all."""
        key = (finding.kind, finding.about)
        known = self._findings.get(key)
        self._findings[key] = finding if known is None else replace(known, times=known.times + 1)
        if finding.is_error:
            self._wrong.add(finding.about)

    def is_wrong(self, row: str) -> bool:
        """Whether something already speaks against a row."""
        return row in self._wrong

    def is_proven(self, row: str) -> bool:
        """Whether every output of a row was put to the test."""
        seen = self._rows.get(row)
        return seen is not None and seen.plain == frozenset()

    def count(self, verdict: Verdict, row: str, sample: str) -> None:
        """Take in a verdict on one row, good or bad."""
        self.combinations += 1
        seen = self._rows.setdefault(row, _Seen(sample))
        if verdict.outcome == "not applicable":
            seen.why = seen.why or verdict.evidence
            return
        if not seen.applied:
            seen.applied, seen.why = True, verdict.evidence
        if verdict.outcome in ("sound", "untested") and (
            verdict.untested or verdict.outcome == "sound"
        ):
            plain = frozenset(verdict.untested)
            seen.plain = plain if seen.plain is None else seen.plain & plain

    def sound(self) -> tuple[str, ...]:
        """The rows that were proven: each output was put to the test, and none failed."""
        return tuple(
            row
            for row, seen in self._rows.items()
            if seen.plain == frozenset() and row not in self._wrong
        )

    def findings(self) -> tuple[Finding, ...]:
        """All findings, by kind; then the rows of which nothing could be said."""
        found = [*self._findings.values()]
        for row, seen in self._rows.items():
            if row in self._wrong or seen.plain == frozenset():
                continue
            kind: Kind = "untested" if seen.applied else "dead"
            found.append(Finding(kind, seen.why, row, seen.sample))
        return tuple(sorted(found, key=lambda f: (KINDS.index(f.kind), -f.saves)))
