"""What a checkup finds, as values that print themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import ConfigDict

State: TypeAlias = Literal["ok", "warn", "fail"]
"""`warn`: it works, and may not be what is meant. `fail`: it does not work."""

SHOWN = 10
"""Details that are printed of one check; one cause often has hundreds."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        about: what it is.
        state: how it is.
        told: what was found, in one line.
        details: what that is made of.
        next_step: what to do; empty if nothing.
    """

    about: str
    state: State
    told: str
    details: tuple[str, ...] = ()
    next_step: str = ""

    # What is printed has every field.
    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    def __str__(self) -> str:
        """Print it, with what to do.

        >>> print(Check("torch", "warn", "2.12.0", next_step="use 2.13.0"))
        warn  torch          2.12.0
                next:  use 2.13.0
        """
        shown = list(self.details[:SHOWN])
        if len(self.details) > SHOWN:
            shown.append(f"... {len(self.details) - SHOWN} more")
        if self.next_step:
            shown.append(f"next:  {self.next_step}")
        lines = [f"{self.state:4}  {self.about:13}  {self.told}"]
        return "\n".join([*lines, *(f"        {line}" for text in shown for line in _lines(text))])


@dataclass(frozen=True, slots=True)
class Checkup:
    """All checks, in the order in which one rests on the other; print it.

    Attributes:
        checks: each once.

    >>> Checkup((Check("torch", "ok", "2.13.0"), Check("plugins", "warn", "none"))).state
    'warn'
    """

    checks: tuple[Check, ...]

    @property
    def state(self) -> State:
        """How the worst of them is."""
        states: tuple[State, ...] = ("fail", "warn", "ok")
        return next((s for s in states if any(c.state == s for c in self.checks)), "ok")

    def __getitem__(self, about: str) -> Check:
        return {check.about: check for check in self.checks}[about]

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def judge(
    about: str, told: str, failures: Iterable[str], warnings: Iterable[str], next_step: str
) -> Check:
    """Make a check of what is wrong: a failure if there is one, fine without any.

    Args:
        about: what was looked at.
        told: what was found.
        failures: what does not work.
        warnings: what works, and may not be meant.
        next_step: what to do, if there is anything to do.
    """
    failed, warned = tuple(failures), tuple(warnings)
    state: State = "fail" if failed else "warn" if warned else "ok"
    return Check(about, state, told, (*failed, *warned), next_step if failed or warned else "")


def _lines(text: str) -> list[str]:
    return text.splitlines() or [""]
