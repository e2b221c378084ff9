"""Everything that can go wrong, as one tree.

A message has four parts in this order: the fact, the place (op, whose rule, which
file), the evidence (placements, mesh, providers) and the next step (what to type).
Classes carry what they know in fields, so that callers never parse a message. What a call of
an op can raise is a RuntimeError too, as what torch makes of an exception in a decision is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from dtensor_registry.remedies import see_why, set_variable, switch_off


class RegistryError(Exception):
    """Root of everything this package raises on its own account.

    Errors can be pickled and copied, since pools of processes send them: the message and the
    fields travel, whatever the arguments of a subclass are.

    Attributes:
        problem: what is wrong; the message, or the part of it that no other field has.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), dict(self.__dict__)


def _rebuilt(kind: type[RegistryError], args: tuple[Any, ...]) -> RegistryError:
    """Make an error from its message; its fields are set after that, as state."""
    error = kind.__new__(kind, *args)
    # A subclass wants what the message is made of, which is not kept; builtin parents take it.
    super(RegistryError, error).__init__(*args)
    return error


class NotationError(RegistryError, ValueError):
    """A text is not in the notation that it should be in, or does not fit what it is used for.

    Attributes:
        text: as written, or as printed where the fault came up only later.
        position: of the character at fault, counted from 0.
        problem: what is wrong there.
    """

    def __init__(self, text: str, position: int, problem: str, advice: str = "") -> None:
        # One line, whatever it was written on, so that the caret finds its character.
        line = "".join(" " if character.isspace() else character for character in text)
        told = f"\n  {advice}" if advice else ""
        super().__init__(
            f"{problem}, at position {position}:\n    {line}\n    {' ' * position}^{told}"
        )
        self.text = text
        self.position = position
        self.problem = problem


class PlacementSyntaxError(NotationError):
    """A text is not in the placement notation."""


class SettingsError(RegistryError, ValueError):
    """A setting is unknown or has a value that cannot be used.

    Attributes:
        places: the files, environment variables and arguments at fault, where they are known.
        keys: the settings at fault, such as `fallback.mode`.
    """

    def __init__(self, problem: str, places: Sequence[str] = (), keys: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.places = tuple(places)
        self.keys = tuple(keys)


class LockFileError(SettingsError):
    """A lock file cannot be read, or is no lock."""

    def __init__(self, file: str, problem: str) -> None:
        command = f"dtensor-registry lock {shlex.quote(file)}"
        super().__init__(f"{file}: {problem}\n  Write it anew:  {command}", [file], ["lock"])
        self.file = file
        self.problem = problem


class InvalidContributionError(RegistryError, TypeError):
    """A strategy object was built from parts that cannot make one."""


class PluginError(RegistryError):
    """One plugin is broken; names it, the cause, and the setting that switches it off."""

    def __init__(self, plugin: str, where: str, cause: str) -> None:
        self.plugin = plugin
        self.where = where
        self.cause = cause
        super().__init__(
            f"plugin {plugin!r} of {where} cannot be used: {cause}\n"
            f"  Switch it off:  {set_variable('disabled', [plugin])}"
        )


class BrokenPluginsError(RegistryError):
    """At least one plugin is broken; `failures` has an error for each."""

    def __init__(self, failures: Sequence[PluginError]) -> None:
        self.failures = tuple(failures)
        lines = "\n".join(f"- {failure}" for failure in self.failures)
        super().__init__(
            f"{len(self.failures)} plugin(s) cannot be used, so nothing was installed.\n{lines}\n"
            "  Or go on without broken plugins (every rank must agree):"
            "  DTENSOR_REGISTRY_ON_PLUGIN_ERROR=skip"
        )


class RequiredPluginError(RegistryError):
    """The settings require a distribution that is missing, too old or switched off."""

    def __init__(self, requirement: str, problem: str, command: str) -> None:
        super().__init__(f"the settings require {requirement!r}, but {problem}.\n  {command}")
        self.requirement = requirement
        self.problem = problem


class ConflictingStrategiesError(RegistryError):
    """Two plugins of equal rank claim one op."""

    def __init__(
        self, op: str, providers: Sequence[str], plugins: Sequence[str], order: Sequence[str]
    ) -> None:
        self.op = op
        self.plugins = tuple(plugins)
        listed = "\n".join(f"  {provider}" for provider in providers)
        super().__init__(
            f"{op} has {len(providers)} providers of equal rank.\n{listed}\n"
            f"Put one first:  {set_variable('order', list(order))}\n"
            f"or pin the op:  {set_variable('pins', {op: self.plugins[0]})}\n"
            f"See what each offers:  dtensor-registry ops {shlex.quote(op)}"
        )


class RuleError(RegistryError, RuntimeError):
    """A rule failed when it was asked: it raised, or what it returned is no set of rows."""

    def __init__(
        self, op: str, plugin: str, owner: str, problem: str, row: str | None = None
    ) -> None:
        evidence = f"\n  row:  {row}" if row is not None else ""
        super().__init__(
            f"the sharding rule for {op} is wrong: {problem}\n  rule of {owner}{evidence}\n"
            f"  A row lists one placement per tensor output, then one per tensor input in schema"
            f" order.\n  Until it is mended:  {switch_off(plugin, op)}"
        )
        self.op = op
        self.plugin = plugin
        self.owner = owner
        self.problem = problem
        self.row = row


class NoValidRowError(RegistryError, RuntimeError):
    """No row of a rule fits the inputs of one call."""

    headline = "no row of its sharding rule fits these inputs."
    advice = ""

    def __init__(
        self,
        op: str,
        plugin: str,
        owner: str,
        inputs: str,
        mesh: str,
        reasons: Iterable[str],
        explain: str = "",
    ) -> None:
        self.op = op
        self.plugin = plugin
        self.owner = owner
        self.reasons = tuple(reasons)
        listed = "\n".join(f"    {reason}" for reason in self.reasons)
        super().__init__(
            f"{op}: {self.headline}\n  rule of {owner}\n"
            f"  inputs {inputs} on mesh {mesh}\n{listed}\n{self.advice}"
            f"  Redistribute an input first, or leave the op to others:"
            f"  {switch_off(plugin, op)}\n{see_why(op, explain)}"
        )


class InPlacePlacementError(NoValidRowError):
    """An in-place op would have to change the placement of what it writes to."""

    def __init__(self, op: str, *told: Any, placement: str, out_of_place: str) -> None:
        self.placement = placement
        self.headline = (
            "in-place operations that require placement changes are not supported. The input"
            f" has placement {placement}, and no row of the rule keeps it."
        )
        self.advice = f"  Use the out-of-place form:  {out_of_place}\n"
        super().__init__(op, *told)


class AskedError(RegistryError, ValueError):
    """What is asked for makes no call: no such op, no such dtype, arguments it does not take."""


class MissingPackageError(RegistryError, ImportError):
    """Something needs a package that is not installed; it comes with an extra of ours."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"{what} needs {package}, which is not installed.\n"
            f"  pip install 'dtensor-registry[{extra}]'"
        )


class UnavailableCommandError(RegistryError):
    """A command cannot be run: who adds it is not installed, or it cannot be loaded."""

    def __init__(self, name: str, reason: str, advice: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"the command {name!r} cannot be used: {reason}\n  {advice}")


class UnsupportedTorchError(RegistryError):
    """This torch lacks, or has changed, private names that the host stands on."""

    def __init__(self, version: str, missing: Sequence[str]) -> None:
        self.version = version
        self.missing = tuple(missing)
        listed = "\n".join(f"  {name}" for name in self.missing)
        super().__init__(
            f"torch {version} is not one that dtensor_registry can work with:\n{listed}\n"
            "Nothing was installed. Use a torch in the tested range (see README), or report this."
        )


class DerivationError(RegistryError):
    """No rule can be derived from a reference: it cannot be traced, or is not like its op."""


class InstallError(RegistryError):
    """The state of the process does not allow the change that was asked for."""


class MisfitError(InstallError):
    """A rule does not fit its op, as the op is in this version of its library.

    Attributes:
        op: the overload.
        plugin: whose rule it is.
        owner: its distribution, version and place.
        problem: what does not fit.
    """

    def __init__(self, op: str, plugin: str, owner: str, problem: str, advice: str = "") -> None:
        step = advice or f"Until it is mended:  {switch_off(plugin, op)}"
        super().__init__(f"{problem}\n  rule of {owner}\n  {step}")
        self.op = op
        self.plugin = plugin
        self.owner = owner
        self.problem = problem


class LockMismatchError(InstallError):
    """What is installed is not what the lock file has."""

    shown = 20
    """Differences that the message lists."""

    def __init__(self, file: str, differences: Sequence[str]) -> None:
        self.file = file
        self.differences = tuple(differences)
        lines = [f"  {difference}" for difference in self.differences[: self.shown]]
        if len(self.differences) > self.shown:
            lines.append(f"  ... {len(self.differences) - self.shown} more")
        listed = "\n".join(lines)
        super().__init__(
            f"what is installed differs from lock file {file} in {len(self.differences)}"
            f" point(s), so nothing was put in force.\n{listed}\n"
            f"  See all:  dtensor-registry diff {shlex.quote(file)}\n"
            f"  If that is what you want:  dtensor-registry lock {shlex.quote(file)}"
        )


class RanksDisagreeError(InstallError):
    """Ranks of one job would shard the same op differently."""

    def __init__(self, ranks: int, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        listed = "\n".join(f"  {line}" for text in differences for line in text.splitlines())
        super().__init__(
            f"{ranks} ranks do not decide alike; they would wait for each other for ever, or"
            f" compute different values.\n{listed}\n"
            "  Give every rank the same distributions and settings; what a rank has:"
            "  dtensor-registry plugins --load"
        )


class MissingRanksError(InstallError):
    """Ranks did not come to compare their rules."""

    def __init__(self, missing: str, timeout: float) -> None:
        self.missing = missing
        super().__init__(
            f"{missing} did not come within {timeout:g} s to compare rules.\n"
            "  Every rank of the group must call check_ranks(), equally often; see the log of"
            " the missing ones for why they did not: a plugin may have failed there."
        )


class OverwrittenEntryError(InstallError):
    """Somebody else wrote to entries of torch's tables that we had on loan."""

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        listed = "\n".join(f"  {entry}" for entry in self.entries)
        super().__init__(
            f"{len(self.entries)} entries of torch's tables were overwritten by other code since"
            f" the registry wrote them; they were left as found, all others restored.\n{listed}\n"
            "  Register through dtensor_registry, or undo the other change first."
        )


class NoStrategyError(RegistryError, NotImplementedError):
    """Nobody has a rule for an op; a NotImplementedError that begins with torch's own words."""

    def __init__(self, op: str, inputs: str, mesh: str, unshaped: bool, explain: str = "") -> None:
        self.op = op
        self.unshaped = unshaped
        why = (
            "  The shape of its output depends on the data or is not known to torch, so torch"
            " cannot decide it before it has run.\n"
            if unshaped
            else ""
        )
        super().__init__(
            f"Operator {op} does not have a sharding strategy registered.\n"
            f"  inputs {inputs} on mesh {mesh}\n{why}"
            f"  Write a rule:  SingleDimStrategy({op!r}, rule), see docs/write-a-plugin.md\n"
            f"  or run it on whole tensors:  DTENSOR_REGISTRY_FALLBACK__MODE=warn\n"
            f"{see_why(op, explain)}"
        )


class RefusedCallError(RegistryError, RuntimeError):
    """A correction refuses a call that torch would get wrong."""

    def __init__(self, op: str, owner: str, because: str, inputs: str, advice: str) -> None:
        self.op = op
        super().__init__(
            f"{op} would give a wrong result: {because}.\n  inputs {inputs}\n"
            f"  refused by {owner}\n  {advice}"
        )


class RandomOpError(RegistryError, RuntimeError):
    """An op draws random numbers, and ranks that must agree would draw different ones."""

    def __init__(self, op: str, owner: str, output: int, mesh_dim: int, explain: str = "") -> None:
        self.op = op
        super().__init__(
            f"{op} draws random numbers; its output {output} would be replicated on mesh dim"
            f" {mesh_dim}, where every rank would draw its own.\n  rule of {owner}\n"
            f"  Shard an input there, or draw the numbers first and pass them as a tensor.\n"
            f"{see_why(op, explain)}"
        )


class MutationError(RegistryError, RuntimeError):
    """An op writes to an argument that is placed so that the write would have no place."""

    def __init__(self, op: str, argument: str, placements: str, owner: str) -> None:
        self.op = op
        self.argument = argument
        self.placements = placements
        super().__init__(
            f"{op} writes to its argument {argument!r}, which is {placements}: what it writes is"
            f" a whole value, and a pending reduction has no place for it.\n  run by {owner}\n"
            f"  Redistribute {argument!r} first, for example to Replicate()."
        )


class MovedArgumentError(RegistryError, RuntimeError):
    """torch would decide an op by its decomposition, and move what cannot be moved."""

    def __init__(
        self, op: str, argument: str, placements: str, is_written: bool, explain: str = ""
    ) -> None:
        self.op = op
        self.argument = argument
        why = (
            "the op writes to it, and the write would be lost"
            if is_written
            else "it is passed by keyword, and torch never moves it"
        )
        super().__init__(
            f"{op}: torch's decomposition of the op has no choice that leaves {argument!r} where it"
            f" is, {placements}; {why}.\n"
            f"  Redistribute {argument!r} first, or use a form of the op that returns its result.\n"
            f"{see_why(op, explain)}"
        )


class ShardOrderError(RegistryError, RuntimeError):
    """A tensor is cut in an order of its own, which an op would take for the default one."""

    def __init__(self, op: str, argument: str, shown: str, problem: str, target: str) -> None:
        self.op = op
        self.argument = argument
        super().__init__(
            f"{op}: {argument} is {shown}: the numbers tell in which order mesh dims cut it, and it"
            f" is not the default order.\n  {problem}.\n"
            f"  Redistribute it first:  x.redistribute(placements={target})"
        )


class MovedViewError(RegistryError, RuntimeError):
    """A write into a view of a moved tensor cannot be brought back to that tensor."""

    def __init__(self, op: str, view_op: str, source: str, copied: str) -> None:
        self.op = op
        self.view_op = view_op
        super().__init__(
            f"{op} writes to a view of a copy, and the write cannot reach the tensor itself.\n"
            f"  {view_op} could not view {source} and moved it to {copied} first;\n"
            f"  a written value cannot be made a pending reduction again.\n"
            f"  Redistribute the tensor to Replicate() before {view_op}, or write to a clone() of"
            f" the view."
        )


class MixedTensorsError(RegistryError, RuntimeError):
    """A plain tensor was passed where DTensors are; torch's own words, and which argument."""

    def __init__(self, torch_says: str, argument: str, shape: tuple[int, ...]) -> None:
        self.argument = argument
        self.shape = shape
        super().__init__(
            f"{torch_says}\n  The plain tensor is argument {argument!r}, shape {shape}.\n"
            f"  Make it a DTensor:  distribute_tensor({argument}, mesh, placements)"
        )


class MixedMeshesError(RegistryError, RuntimeError):
    """DTensors of one call are on different meshes."""

    def __init__(self, op: str, argument: str, mesh: str, other: str) -> None:
        self.op = op
        self.argument = argument
        super().__init__(
            f"DTensor does not support cross-mesh operation on {op}!\n"
            f"  The first tensor is on {mesh}, argument {argument!r} is on {other}.\n"
            f"  Put them on one mesh."
        )


class FallbackRefusedError(RegistryError, NotImplementedError):
    """No rule, and every fallback refused or there is none; torch raises NotImplementedError."""

    def __init__(self, op: str, reasons: Sequence[tuple[str, str]], explain: str = "") -> None:
        self.op = op
        self.reasons = tuple(reasons)
        listed = "\n".join(f"  fallback {name!r} refused: {reason}" for name, reason in reasons)
        if not reasons:
            listed = (
                "  No plugin contributes a fallback that setting fallback.order admits.\n"
                "  Install one:  pip install dtensor-registry-fallback"
            )
        super().__init__(
            f"Operator {op} does not have a sharding strategy registered.\n{listed}\n"
            f"  Write a rule: SingleDimStrategy({op!r}, rule); see docs/write-a-plugin.md\n"
            f"{see_why(op, explain)}"
        )
