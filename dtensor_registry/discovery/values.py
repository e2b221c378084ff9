"""What discovery finds, as values: plugins, whose a rule is, contributions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dtensor_registry.rules import FallbackStrategy, SingleDimStrategy
from dtensor_registry.rules.strategy import SourceLine

LOCAL = "local"
"""Plugin name of what this process registers by hand."""
PROGRAM = "this program"
"""Stands in place of a plugin for what torch's own `register_sharding` was given."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of one distribution, and whether it takes part.

    Attributes:
        name: the entry point's name, which settings and messages use.
        distribution: the installed distribution that declares it.
        version: the distribution's version.
        module: the entry point's value.
        state: `active` takes part; `disabled` and `not allowed` were switched off before
            import; `failed` could not be used.
        reason: why it does not take part, empty for an active plugin.
    """

    name: str
    distribution: str
    version: str
    module: str
    state: Literal["active", "disabled", "not allowed", "failed"] = "active"
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} (entry point {self.name!r}, {self.module})"

    def answers_to(self, name: str) -> bool:
        """Say whether a name in a setting means this plugin."""
        return name in (self.name, self.module) or same_distribution(name, self.distribution)


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose a rule is and where it was written."""

    plugin: str
    distribution: str
    version: str
    source: SourceLine

    def __str__(self) -> str:
        if self.plugin == LOCAL:
            return f"this process ({self.source})"
        if self.plugin == PROGRAM:
            return f"{PROGRAM} ({self.source})"
        return f"{self.distribution} {self.version} (entry point {self.plugin!r}, {self.source})"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one plugin says about one op, or about all overloads of one packet.

    Attributes:
        op: as the plugin named it: `aten.mm.default`, or `aten.mm` for a packet.
        strategy: the rule and its flags.
        origin: whose it is.
    """

    op: str
    strategy: SingleDimStrategy
    origin: Origin


@dataclass(frozen=True, slots=True)
class Fallback:
    """One plugin's fallback."""

    strategy: FallbackStrategy
    origin: Origin


@dataclass(frozen=True, slots=True)
class Discovery:
    """Everything that was found, before anybody won.

    Attributes:
        plugins: all entry points of the group, sorted by name and distribution.
        contributions: from active plugins, in the order of `plugins`.
        fallbacks: likewise.
        notes: what the user should know: unknown names in settings, plugins left out.
    """

    plugins: tuple[Plugin, ...]
    contributions: tuple[Contribution, ...]
    fallbacks: tuple[Fallback, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{plugin}: {plugin.state}" for plugin in self.plugins]
        return "\n".join(lines) or "no plugin is installed"


def normal_name(distribution: str) -> str:
    """Normalise a distribution's name. Source: PEP 503.

    >>> normal_name("Acme_Kernels")
    'acme-kernels'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def same_distribution(name: str, other: str) -> bool:
    """Say whether two spellings mean one distribution."""
    return normal_name(name) == normal_name(other)
