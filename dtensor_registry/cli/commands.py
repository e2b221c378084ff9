"""The commands of the program: the host's own, and those that other distributions add.

A distribution adds a command by an entry point in the group `dtensor_registry.commands`, whose
name is the command's and whose value is a `Command`. Its module is imported when the command is
typed, or when all commands are listed, so that it costs no other command anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import importlib_metadata

from dtensor_registry.cli.audit import AUDIT
from dtensor_registry.cli.command import Command
from dtensor_registry.cli.diff import DIFF
from dtensor_registry.cli.doctor import DOCTOR
from dtensor_registry.cli.explain import EXPLAIN
from dtensor_registry.cli.lock import LOCK
from dtensor_registry.cli.ops import OPS
from dtensor_registry.cli.plugins import PLUGINS
from dtensor_registry.discovery.distributions import declared_in
from dtensor_registry.errors import UnavailableCommandError

GROUP = "dtensor_registry.commands"
OWN = (AUDIT, DIFF, DOCTOR, EXPLAIN, LOCK, OPS, PLUGINS)
KIT = "dtensor-registry-kit"
OF_THE_KIT = ("derive", "new", "verify")
"""Commands of the authors' kit, named where it is not installed."""
_ADVICE = "Tell its author; every other command works without it."


@dataclass(frozen=True, slots=True)
class Commands:
    """What the program can run.

    Attributes:
        usable: sorted by name.
        unavailable: commands by name, and why each cannot be run.
        refused: what the user should know of entry points that make no command.
    """

    usable: tuple[Command, ...]
    unavailable: dict[str, UnavailableCommandError]
    refused: tuple[str, ...] = ()


def find_commands(words: Sequence[str] = ()) -> Commands:
    """Find the commands, and load those of other distributions that the user's words need.

    Args:
        words: what follows the program's name. If a known command is among them it alone is
            loaded, else all are.

    Raises:
        UnavailableCommandError: if the words name a command that cannot be run.
    """
    usable = {command.name: command for command in OWN}
    added: dict[str, list[importlib_metadata.EntryPoint]] = {}
    for entry_point in declared_in(GROUP):
        added.setdefault(entry_point.name, []).append(entry_point)
    refused = [_shadowed(entry_point) for name in usable for entry_point in added.pop(name, ())]
    unavailable = {
        name: UnavailableCommandError(name, f"{KIT} is not installed", f"pip install {KIT}")
        for name in OF_THE_KIT
        if name not in added
    }
    wanted = next((word for word in words if not word.startswith("-")), None)
    is_known = wanted in {*usable, *added, *unavailable}
    for name, entry_points in added.items():
        if is_known and wanted != name:
            continue
        try:
            usable[name] = _load(name, entry_points)
        except UnavailableCommandError as error:
            unavailable[name] = error
            refused.append(str(error))
    if wanted in unavailable:
        raise unavailable[wanted]
    return Commands(
        tuple(usable[name] for name in sorted(usable)), unavailable, tuple(sorted(refused))
    )


def _shadowed(entry_point: importlib_metadata.EntryPoint) -> str:
    return (
        f"{_owner(entry_point)} adds a command {entry_point.name!r}, which is dtensor-registry's"
        " own name; it is passed over"
    )


def _load(name: str, entry_points: Sequence[importlib_metadata.EntryPoint]) -> Command:
    """Load a command.

    Raises:
        UnavailableCommandError: naming who adds it, and what is wrong.
    """
    owners = " and ".join(sorted(map(_owner, entry_points)))
    if len(entry_points) > 1:
        raise UnavailableCommandError(name, f"{owners} add it both", "Uninstall one of them.")
    try:
        command = entry_points[0].load()
    except Exception as error:
        told = f"{owners} cannot be loaded: {type(error).__name__}: {error}".partition("\n")[0]
        raise UnavailableCommandError(name, told, _ADVICE) from error
    if not isinstance(command, Command) or command.name != name:
        told = f"{owners} is no Command that is called {name!r}"
        raise UnavailableCommandError(name, told, _ADVICE)
    return command


def _owner(entry_point: importlib_metadata.EntryPoint) -> str:
    dist = entry_point.dist
    assert dist is not None, f"{entry_point} was found in a distribution"
    return f"{dist.name} {dist.version} ({entry_point.value})"
