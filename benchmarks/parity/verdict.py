"""What became of a program or a call, and how that compares with bare torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from benchmarks.parity.ways import Way

Verdict: TypeAlias = Literal["same", "better", "dearer by a correction", "worse", "silently wrong"]

VERDICTS: tuple[Verdict, ...] = (
    "same",
    "better",
    "dearer by a correction",
    "worse",
    "silently wrong",
)
"""From good to bad."""

FAILURES = ("refused", "hang")


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one run.

    Attributes:
        outcome: `right`, `wrong` (other numbers than one process, without a word), `refused` (an
            error on every rank) or `hang` (some ranks wait for others, or died).
        told: the error's first line, or what differs.
        collectives: how many a rank took part in, by name.
        bytes: what all ranks together put into them.
    """

    outcome: str
    told: str
    collectives: Mapping[str, int]
    bytes: int

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Seen:
        """Read what a pool says."""
        return cls(said["outcome"], said["told"], said["collectives"], said["bytes"])

    @property
    def count(self) -> int:
        """Collectives of all kinds."""
        return sum(self.collectives.values())

    def __str__(self) -> str:
        if self.outcome != "right":
            return f"{self.outcome}: {self.told}"
        kinds = ", ".join(f"{count} {name}" for name, count in self.collectives.items())
        return f"right, {kinds or 'no collective'}, {self.bytes} bytes"


def judge(bare: Seen, ours: Seen) -> Verdict:
    """Compare a run with the registry with the run on bare torch.

    >>> free, dear = Seen("right", "", {}, 0), Seen("right", "", {"all_gather": 1}, 8)
    >>> judge(free, dear), judge(dear, free), judge(Seen("wrong", "", {}, 0), dear)
    ('worse', 'better', 'better')
    """
    if ours.outcome == "wrong":
        return "silently wrong"
    if ours.outcome == "right":
        if bare.outcome != "right" or (ours.count, ours.bytes) == (bare.count, bare.bytes):
            return "same" if bare.outcome == "right" else "better"
        return "worse" if ours.count > bare.count or ours.bytes > bare.bytes else "better"
    if bare.outcome in FAILURES:
        if bare.outcome == ours.outcome:
            return "same"
        return "better" if ours.outcome == "refused" else "worse"
    return "worse" if bare.outcome == "right" else "better"


@dataclass(frozen=True, slots=True)
class Compared:
    """One program or call, in all ways.

    Attributes:
        kind: `program` or `call`.
        name: what replays it.
        seen: what became of it, by way.
        uncorrected: what became of it with the plugin `corrections` switched off; asked of those
            that move more.
        about: what it is, for a reader.
    """

    kind: Literal["program", "call"]
    name: str
    seen: Mapping[Way, Seen]
    uncorrected: Seen | None = None
    about: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst of all ways."""
        found = [self._verdict_of(way) for way in self.seen if way != "bare"]
        return max(found, key=VERDICTS.index, default="same")

    @property
    def moves_more(self) -> bool:
        """Whether all is right, and what is worse is that more is moved."""
        all_right = all(seen.outcome == "right" for seen in self.seen.values())
        return self.verdict == "worse" and all_right

    @property
    def is_odd(self) -> bool:
        """Whether a way differs from bare torch, is wrong as bare torch is, or did not run."""
        return self.verdict != "same" or any(
            seen.outcome in ("wrong", "hang") or seen.told.startswith("outside of the call")
            for seen in self.seen.values()
        )

    def _verdict_of(self, way: Way) -> Verdict:
        bare, ours = self.seen["bare"], self.seen[way]
        found = judge(bare, ours)
        if found != "worse" or ours.outcome != "right" or self.uncorrected is None:
            return found
        is_no_dearer = judge(bare, self.uncorrected) in ("same", "better")
        return "dearer by a correction" if is_no_dearer else "worse"

    def __str__(self) -> str:
        lines = [f"{self.verdict}: --{self.kind} {self.name}{self.about and '  ' + self.about}"]
        ways: dict[str, list[str]] = {}
        for way, seen in self.seen.items():
            ways.setdefault(str(seen), []).append(way)
        return "\n".join([*lines, *(f"    {', '.join(w)}: {seen}" for seen, w in ways.items())])

    def as_json(self) -> dict[str, Any]:
        """Write it down for `--json`."""
        return {
            "kind": self.kind,
            "name": self.name,
            "verdict": self.verdict,
            "about": self.about,
            "ways": {
                way: {
                    "outcome": seen.outcome,
                    "told": seen.told,
                    "collectives": dict(seen.collectives),
                    "bytes": seen.bytes,
                }
                for way, seen in self.seen.items()
            },
        }
