"""Who wins each op, and why.

A pure function of what was discovered, of the settings, and of what torch itself has. The
outcome follows from names alone: not from the order of entry points, of `sys.path`, or of
any hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from dtensor_registry.discovery import (
    LOCAL,
    Contribution,
    Discovery,
    Fallback,
    Origin,
    is_disabled_for,
    may_override,
)
from dtensor_registry.errors import ConflictingStrategiesError, SettingsError
from dtensor_registry.rules import CORRECTED_TABLE, Without
from dtensor_registry.settings import EVERYBODY_ELSE, TORCH, Settings, nearest

PINNED = "pinned"
"""Why an op went to whom setting `pins` names for it."""


class Catalog(Protocol):
    """What resolution must know of torch."""

    def overloads(self, name: str) -> tuple[Any, ...]:
        """All overloads that a name stands for; empty while the op does not exist."""

    def variants(self, op: Any) -> tuple[Any, ...]:
        """All other forms of an overload: in place, `out=`, over lists."""

    def torch_table(self, op: Any) -> str | None:
        """The table in which torch itself has a rule or a handler for an overload, or None."""


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A contribution that did not win, and why."""

    contribution: Contribution
    reason: str


REGISTERED = "registered by torch's register_sharding"
"""Why an op is the program's."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who rules one op.

    Attributes:
        op: the overload's name, or the name as contributed while the op does not exist.
        overload: the overload itself; None while it does not exist.
        winner: the contribution that is installed, or None when torch or the program has the op.
        reason: why the winner won.
        shadowed: all other contributions for the op, with reasons.
        torch_table: where torch has a rule or a handler of its own, or None.
        program: where the program registered the op by torch's `register_sharding`, or None.
    """

    op: str
    overload: Any
    winner: Contribution | None
    reason: str
    shadowed: tuple[Shadowed, ...]
    torch_table: str | None
    program: Origin | None = None

    @property
    def pending(self) -> bool:
        """Whether the op does not exist yet; the rule is bound when it does."""
        return self.overload is None

    def __str__(self) -> str:
        owner = str(self.winner.origin if self.winner else self.program or TORCH)
        state = " (pending)" if self.pending else ""
        losers = [f"\n  shadowed: {s.contribution.origin}: {s.reason}" for s in self.shadowed]
        return f"{self.op}{state}: {owner}, {self.reason}{''.join(losers)}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome for every op that a plugin spoke about; print it, or look an op up.

    Attributes:
        verdicts: by op, sorted.
        fallbacks: in the order in which they are asked.
    """

    verdicts: Mapping[str, Verdict]
    fallbacks: tuple[Fallback, ...]

    def __getitem__(self, op: str) -> Verdict:
        return self.verdicts[op]

    def __contains__(self, op: str) -> bool:
        return op in self.verdicts

    def __str__(self) -> str:
        return "\n".join(str(verdict) for verdict in self.verdicts.values())


def resolve(
    discovery: Discovery,
    settings: Settings,
    catalog: Catalog,
    local: Sequence[Contribution] = (),
    left_out: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> Resolution:
    """Decide who rules each op.

    Args:
        discovery: what plugins contributed.
        settings: `order`, `pins`, `disabled` and `on_conflict`.
        catalog: which overloads exist, and which of them torch rules itself.
        local: what this process registered by hand; wins over every plugin, the latest first.
        left_out: rules that cannot be used, as `(op, plugin)`, and why.

    Raises:
        ConflictingStrategiesError: if two plugins on one step of `order` claim an op that
            neither a pin nor a higher step decides, and `on_conflict` is `error`.
    """
    claims: dict[str, dict[str, Contribution]] = {}
    overloads: dict[str, Any] = {}
    for contribution in (*discovery.contributions, *local):
        found = list(catalog.overloads(contribution.op))
        if contribution.strategy.variants:
            found += [variant for op in found for variant in catalog.variants(op)]
        named = {str(op): op for op in found} or {contribution.op: None}
        overloads |= named
        for name in named:
            _claim(claims.setdefault(name, {}), name, contribution)
    for name in claims:
        packet = name.rpartition(".")[0]
        if overloads[name] is None and packet in claims and overloads[packet] is None:
            # Whoever claims the packet claims its overloads, known or to come.
            for contribution in claims[packet].values():
                _claim(claims[name], name, contribution)
    verdicts = {}
    for name in sorted(claims):
        op = overloads[name]
        table = None if op is None else catalog.torch_table(op)
        verdicts[name] = _judge(name, op, claims[name], settings, table, left_out)
    return Resolution(
        MappingProxyType(verdicts), tuple(_in_order(discovery.fallbacks, settings.fallback.order))
    )


def obeying(resolution: Resolution, program: Mapping[Any, Origin]) -> Resolution:
    """Put above all plugins what the program registers by torch's `register_sharding`.

    Args:
        resolution: what was decided among plugins and torch.
        program: by overload, where the program's function was written.
    """
    verdicts = dict(resolution.verdicts)
    for overload, origin in program.items():
        op = str(overload)
        found = verdicts.get(op)
        shadowed = () if found is None else found.shadowed
        if found is not None and found.winner is not None:
            reason = f"{origin.plugin} comes first: {REGISTERED}"
            shadowed = (Shadowed(found.winner, reason), *shadowed)
        table = None if found is None else found.torch_table
        verdicts[op] = Verdict(op, overload, None, REGISTERED, shadowed, table, origin)
    return Resolution(
        MappingProxyType({op: verdicts[op] for op in sorted(verdicts)}), resolution.fallbacks
    )


def check_pins_are_used(resolution: Resolution, settings: Settings) -> None:
    """Hold each pin against what its plugin contributes.

    Raises:
        SettingsError: if a plugin is pinned to an op of which it says nothing.
    """
    for op, plugin in settings.pins.items():
        if plugin == TORCH:
            continue
        verdicts = [v for name, v in resolution.verdicts.items() if _pinned(name, settings)]
        for verdict in verdicts:
            winner = verdict.winner
            if winner is not None and winner.origin.plugin == plugin and _names(verdict.op, op):
                break
        else:
            said = sorted(name for name, v in resolution.verdicts.items() if _says(v, plugin))
            raise SettingsError(
                f"pins = {{{op!r}: {plugin!r}}}: plugin {plugin!r} contributes no rule for {op}"
                f" that may be used; {nearest(op, said)}"
            )


def _names(op: str, pin: str) -> bool:
    return pin in (op, op.rpartition(".")[0])


def _says(verdict: Verdict, plugin: str) -> bool:
    claims = [s.contribution for s in verdict.shadowed]
    if verdict.winner is not None:
        claims.append(verdict.winner)
    return any(claim.origin.plugin == plugin for claim in claims)


def _claim(claims: dict[str, Contribution], op: str, contribution: Contribution) -> None:
    """Enter a claim; within one plugin an overload by name beats its whole packet."""
    plugin = contribution.origin.plugin
    held = claims.get(plugin)
    if held is None or plugin == LOCAL or (contribution.op == op and held.op != op):
        claims[plugin] = contribution


def _judge(
    op: str,
    overload: Any,
    claims: Mapping[str, Contribution],
    settings: Settings,
    torch_table: str | None,
    left_out: Mapping[tuple[str, str], str],
) -> Verdict:
    shadowed: list[Shadowed] = []
    ranked: dict[int, list[Contribution]] = {}
    for plugin in sorted(claims):
        contribution = claims[plugin]
        rank = _rank(plugin, op, settings)
        if is_disabled_for(settings, plugin, contribution.origin.distribution, op):
            shadowed.append(Shadowed(contribution, "switched off for this op in 'disabled'"))
        elif (op, plugin) in left_out:
            shadowed.append(Shadowed(contribution, left_out[op, plugin]))
        elif rank is None:
            shadowed.append(Shadowed(contribution, "not in 'order', which has no '*'"))
        elif isinstance(contribution.strategy.rule, Without) and torch_table != CORRECTED_TABLE:
            shadowed.append(Shadowed(contribution, "torch has no rows here to leave any out of"))
        elif torch_table is not None and not _may_override(contribution.origin, settings):
            shadowed.append(Shadowed(contribution, "torch has a rule; not in 'may_override'"))
        else:
            ranked.setdefault(rank, []).append(contribution)
    torch_rank = _rank(TORCH, op, settings)
    # A pin to torch means all of its way: where it has no rule, its decomposition or its error.
    torch_answers = torch_table is not None or is_left_to_torch(op, settings)
    winner: Contribution | None = None
    reason = "no contribution is left"
    for rank in sorted(ranked):
        rivals = ranked[rank]
        torch_precedes = torch_rank is not None and torch_rank < rank
        if winner is None and torch_precedes and torch_answers:
            reason = _why(TORCH, op, settings)
            shadowed += (Shadowed(r, f"torch comes first: {reason}") for r in rivals)
        elif winner is not None:
            ahead = f"{winner.origin.plugin} comes first: {reason}"
            shadowed += (Shadowed(rival, ahead) for rival in rivals)
        elif len(rivals) == 1:
            winner, reason = rivals[0], _why(rivals[0].origin.plugin, op, settings)
            if torch_precedes and overload is not None:
                reason += "; torch has no rule for it"
        elif settings.on_conflict == "error":
            raise _conflict(op, rivals, settings)
        else:
            shadowed += (Shadowed(rival, "in conflict, on_conflict is 'skip'") for rival in rivals)
    return Verdict(op, overload, winner, reason, tuple(shadowed), torch_table)


def is_left_to_torch(op: str, settings: Settings) -> bool:
    """Say whether a pin leaves an op to torch, whatever torch has for it.

    >>> from dtensor_registry.settings import read_settings
    >>> is_left_to_torch("aten.mm.default", read_settings(pins={"aten.mm": "torch"}))
    True
    """
    return _pinned(op, settings) == TORCH


def _may_override(origin: Origin, settings: Settings) -> bool:
    return origin.plugin == LOCAL or may_override(settings, origin.plugin, origin.distribution)


def _rank(plugin: str, op: str, settings: Settings) -> int | None:
    """Place a plugin for one op: lower wins, None takes no part."""
    if plugin == LOCAL:
        return -2
    if _pinned(op, settings) == plugin:
        return -1
    order = settings.order
    if plugin in order:
        return order.index(plugin)
    if plugin == TORCH:
        return len(order)
    return order.index(EVERYBODY_ELSE) if EVERYBODY_ELSE in order else None


def _pinned(op: str, settings: Settings) -> str | None:
    """Find the pin of an overload, by its own name or by its packet's."""
    return settings.pins.get(op) or settings.pins.get(op.rpartition(".")[0])


def _why(plugin: str, op: str, settings: Settings) -> str:
    if plugin == LOCAL:
        return "registered in this process"
    if _pinned(op, settings) == plugin:
        return PINNED
    rank = _rank(plugin, op, settings)
    step = plugin if plugin in settings.order else EVERYBODY_ELSE
    return f"step {rank} of 'order' ({step!r})"


def _conflict(
    op: str, rivals: Iterable[Contribution], settings: Settings
) -> ConflictingStrategiesError:
    origins = [rival.origin for rival in rivals]
    plugins = [origin.plugin for origin in origins]
    order = [plugins[0], *(step for step in settings.order if step != plugins[0])]
    return ConflictingStrategiesError(op, [str(origin) for origin in origins], plugins, order)


def _in_order(fallbacks: Iterable[Fallback], order: Sequence[str]) -> list[Fallback]:
    """Sort fallbacks by the setting; those under `*` by name and plugin, so that ranks agree."""

    def rank(fallback: Fallback) -> tuple[int, str, str]:
        name = fallback.strategy.name
        others = order.index("*") if "*" in order else len(order)
        place = order.index(name) if name in order else others
        return place, name, fallback.origin.plugin

    everybody = "*" in order
    return sorted((f for f in fallbacks if everybody or f.strategy.name in order), key=rank)
