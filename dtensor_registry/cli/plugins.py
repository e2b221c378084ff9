"""`dtensor-registry plugins`: who is installed, and who takes part."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict

from dtensor_registry.cli.command import FINE, PROBLEM, Command
from dtensor_registry.cli.output import (
    print_json,
    print_lines,
    print_table,
    print_warnings,
    without_plugin_warnings,
)
from dtensor_registry.discovery import (
    Contribution,
    Discovery,
    Fallback,
    Plugin,
    discover,
    list_plugins,
)
from dtensor_registry.discovery.settings_check import check_required, unknown_names
from dtensor_registry.settings import Settings, read_settings

STYLES = {"active": "green", "disabled": "yellow", "not allowed": "yellow", "failed": "red"}
"""Colours of the states."""


class PluginRow(BaseModel):
    """One plugin, as `--json` prints it.

    Attributes:
        strategies: how many names of ops it has rules for; only with `--load`, None if it
            was not loaded.
        fallbacks: likewise, how many fallbacks.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    distribution: str
    version: str
    module: str
    state: str
    reason: str
    strategies: int | None = None
    fallbacks: int | None = None


class PluginsReport(BaseModel):
    """What `plugins --json` prints."""

    model_config = ConfigDict(frozen=True)

    plugins: tuple[PluginRow, ...]
    order: tuple[str, ...]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", action="store_true", help="import the plugins and count what they contribute"
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings()
    if arguments.load:
        discovery = _load(settings)
        plugins, notes = discovery.plugins, discovery.notes
        rows = [_row(plugin, **_counts(plugin, discovery)) for plugin in plugins]
    else:
        plugins = list_plugins(settings)
        notes = tuple(unknown_names(settings, plugins))
        rows = [_row(plugin) for plugin in plugins]
    report = PluginsReport(plugins=tuple(rows), order=settings.order)
    if arguments.json:
        print_json(report)
    else:
        _print(report, with_counts=arguments.load)
    print_warnings(notes)
    # Last, so that what is there can be seen when what is required is not.
    check_required(settings, plugins)
    return PROBLEM if any(plugin.state == "failed" for plugin in plugins) else FINE


def _load(settings: Settings) -> Discovery:
    """Load all that can be loaded: one that is broken, or missing, must not hide the others."""
    lenient = settings.model_copy(update={"on_plugin_error": "skip", "required": ()})
    with without_plugin_warnings():
        return discover(lenient)


def _counts(plugin: Plugin, discovery: Discovery) -> dict[str, int | None]:
    if plugin.state != "active":
        return {"strategies": None, "fallbacks": None}
    return {
        "strategies": _count(plugin, discovery.contributions),
        "fallbacks": _count(plugin, discovery.fallbacks),
    }


def _count(plugin: Plugin, offers: Iterable[Contribution | Fallback]) -> int:
    # The name alone will do: of two active plugins with one name, both have failed.
    return sum(offer.origin.plugin == plugin.name for offer in offers)


def _row(plugin: Plugin, **counts: int | None) -> PluginRow:
    return PluginRow.model_validate(asdict(plugin) | counts)


def _print(report: PluginsReport, with_counts: bool) -> None:
    columns = ["plugin", "distribution", "version", "module", "state", "reason"]
    if with_counts:
        columns[5:5] = ["strategies", "fallbacks"]
    cells = []
    for row in report.plugins:
        line = [row.name, row.distribution, row.version, row.module, row.state, row.reason]
        if with_counts:
            counts = (row.strategies, row.fallbacks)
            line[5:5] = ["-" if count is None else str(count) for count in counts]
        cells.append(line)
    if cells:
        print_table(columns, cells, STYLES)
    else:
        print_lines("no plugin is installed")
    print_lines("", f"order, highest first: {', '.join(report.order)}")


PLUGINS = Command(
    name="plugins",
    summary="list installed plugins, and whether they take part",
    details="List the plugins that are installed and whether the settings let them take part.\n"
    "No plugin is imported, and neither is torch, unless you ask for it with --load.",
    example="dtensor-registry plugins --load",
    configure=_configure,
    run=_run,
)
