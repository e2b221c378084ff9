"""`dtensor-registry ops [GLOB]`: who wins each op that a plugin has a rule for, and why."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from dataclasses import asdict
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import (
    print_error,
    print_json,
    print_lines,
    print_table,
    print_warnings,
    without_plugin_warnings,
)
from dtensor_registry.discovery import Contribution, Fallback, Origin, discover
from dtensor_registry.errors import ConflictingStrategiesError
from dtensor_registry.resolution import PINNED, Resolution, Verdict, obeying
from dtensor_registry.rules.strategy import rule_name
from dtensor_registry.settings import TORCH, Settings, read_settings


class ProviderRow(BaseModel):
    """Whose a rule is, where it was written, and how it prints."""

    model_config = ConfigDict(frozen=True)

    plugin: str
    distribution: str
    version: str
    source: str
    rule: str

    def __str__(self) -> str:
        if not self.version:  # the program itself
            return f"{self.plugin} ({self.source})"
        return f"{self.plugin} ({self.distribution} {self.version}, {self.source})"


class ShadowedRow(ProviderRow):
    """A provider that did not win, and why."""

    reason: str

    def __str__(self) -> str:
        return f"{super().__str__()} {self.rule}: {self.reason}"


class OpRow(BaseModel):
    """Who rules one op; without a winner, torch does, if it has a table for the op."""

    model_config = ConfigDict(frozen=True)

    op: str
    winner: ProviderRow | None
    reason: str
    pending: bool
    torch_table: str | None
    shadowed: tuple[ShadowedRow, ...]


class FallbackRow(ProviderRow):
    """One fallback, in the order in which they are asked."""

    name: str


class OpsReport(BaseModel):
    """What `ops --json` prints.

    Attributes:
        conflict: the error that `install()` would raise; the verdicts are then those of
            `on_conflict = "skip"`.
    """

    model_config = ConfigDict(frozen=True)

    ops: tuple[OpRow, ...]
    fallbacks: tuple[FallbackRow, ...]
    fallback_mode: str
    conflict: str | None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "glob",
        metavar="GLOB",
        nargs="?",
        default="*",
        help="which ops: 'aten.mm.default', 'aten.mm' for all its overloads, 'acme.*'",
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()
    resolution, conflict, notes = _resolve(settings)
    glob = arguments.glob.replace("::", ".")
    matching = [v for op, v in resolution.verdicts.items() if _matches(op, glob)]
    missing = not matching and glob != "*"
    report = OpsReport(
        ops=tuple(_op_row(verdict) for verdict in matching),
        fallbacks=tuple(_fallback_row(fallback) for fallback in resolution.fallbacks),
        fallback_mode=settings.fallback.mode,
        conflict=None if conflict is None else str(conflict),
    )
    if arguments.json:
        print_json(report)
    elif not missing:
        _print(report, with_fallbacks=glob == "*")
    print_warnings(notes)
    if missing:
        print_error(_no_match(glob, resolution.verdicts))
    if conflict is not None:
        raise conflict
    return PROBLEM if missing else FINE


def _resolve(
    settings: Settings,
) -> tuple[Resolution, ConflictingStrategiesError | None, tuple[str, ...]]:
    """Resolve as `install()` would; after a conflict, once more without the ops in conflict."""
    # Here, since importing it imports torch, which `plugins` and `--help` must not.
    from dtensor_registry.torch_patch.program_rules import origins
    from dtensor_registry.torch_patch.winners import Winners

    with without_plugin_warnings():
        discovery = discover(settings)
    conflict = None
    try:
        winners = Winners(discovery, settings)
    except ConflictingStrategiesError as error:
        conflict = error
        winners = Winners(discovery, settings.model_copy(update={"on_conflict": "skip"}))
    resolution = obeying(winners.resolution, origins())
    return resolution, conflict, (*discovery.notes, *winners.left_out())


def _matches(op: str, glob: str) -> bool:
    """Match an op by its own name or by its packet's.

    >>> _matches("aten.mm.default", "aten.mm"), _matches("aten.mm.default", "aten.m")
    (True, False)
    """
    return fnmatchcase(op, glob) or fnmatchcase(_packet(op), glob)


def _packet(op: str) -> str:
    return ".".join(op.split(".")[:2])


def _no_match(glob: str, ops: Iterable[str]) -> str:
    names = set(ops) if glob.count(".") == 2 else {_packet(op) for op in ops}
    close = difflib.get_close_matches(glob, sorted(names), cutoff=0.8)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "none is close to it"
    return (
        f"no plugin has a rule for an op that matches {glob!r}; {hint}\n"
        "  List all that plugins have rules for:  dtensor-registry ops"
    )


def _op_row(verdict: Verdict) -> OpRow:
    shadowed = [
        ShadowedRow(reason=loser.reason, **_provider(loser.contribution).model_dump())
        for loser in verdict.shadowed
    ]
    winner = None if verdict.winner is None else _provider(verdict.winner)
    if verdict.program is not None:
        winner = ProviderRow(**_origin(verdict.program), rule=verdict.reason)
    return OpRow(
        op=verdict.op,
        winner=winner,
        reason=verdict.reason,
        pending=verdict.pending,
        torch_table=verdict.torch_table,
        shadowed=tuple(shadowed),
    )


def _provider(contribution: Contribution) -> ProviderRow:
    return ProviderRow(**_origin(contribution.origin), rule=rule_name(contribution.strategy.rule))


def _fallback_row(fallback: Fallback) -> FallbackRow:
    strategy = fallback.strategy
    return FallbackRow(
        **_origin(fallback.origin), rule=rule_name(strategy.rule), name=strategy.name
    )


def _origin(origin: Origin) -> dict[str, str]:
    return asdict(origin) | {"source": str(origin.source)}


def _print(report: OpsReport, with_fallbacks: bool) -> None:
    if report.conflict is not None:
        print_lines("There is a conflict; what follows is as on_conflict = 'skip' has it.", "")
    if report.ops:
        print_table(
            ["op", "winner", "rule", "why", "shadowed"], [_cells(row) for row in report.ops]
        )
    else:
        print_lines("no plugin has a rule for any op")
    if with_fallbacks and report.fallbacks:
        named = [f"  {row.name}: {row}" for row in report.fallbacks]
        print_lines("", f"fallbacks, in this order (mode {report.fallback_mode!r}):", *named)


def _cells(row: OpRow) -> list[str]:
    torch = f"{TORCH} ({row.torch_table})" if row.torch_table else None
    losers = [str(loser) for loser in row.shadowed]
    if row.winner is None:
        # An op without a rule of torch's is pinned to what torch does then: decompose, or raise.
        winner, rule = torch or (TORCH if row.reason == PINNED else "nobody"), ""
    else:
        winner, rule = str(row.winner), row.winner.rule
        losers += [torch] if torch else []
    op = f"{row.op} (pending)" if row.pending else row.op
    return [op, winner, rule, row.reason, "; ".join(losers)]


OPS = Command(
    name="ops",
    summary="list the ops that plugins have rules for, and who wins each",
    details="List the ops that plugins have rules for: who wins each, with what rule and why,\n"
    "and who is shadowed. An op is (pending) until the library that defines it is imported.",
    example="dtensor-registry ops 'aten.add*'",
    configure=_configure,
    run=_run,
)
