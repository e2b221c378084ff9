"""What there is to verify: every rule that a plugin has for an op, and torch's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch

from dtensor_registry.discovery import Contribution, Discovery, discover
from dtensor_registry.errors import MisfitError, SettingsError
from dtensor_registry.resolution import Resolution, resolve
from dtensor_registry.rules import CORRECTED_TABLE, Amended, Rule, Without
from dtensor_registry.settings import TORCH, Settings, nearest
from dtensor_registry.torch_patch.catalog import SINGLE_DIM, TorchCatalog
from dtensor_registry.torch_patch.entries import single_dim_entry
from dtensor_registry.torch_patch.layers import Entry
from dtensor_registry.torch_patch.table_patcher import LEDGER, torch_schema_info
from dtensor_registry.torch_patch.torch_rules import as_plugin_rule
from dtensor_registry.torch_patch.winners import Winners
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry_kit.corrections.counterexamples import samples_of
from dtensor_registry_kit.samples.other_forms import derived_calls
from dtensor_registry_kit.samples.sample import Sample, sample_of
from dtensor_registry_kit.torch_private import OpOverload


@dataclass(frozen=True, slots=True)
class Target:
    """One rule for one op.

    Attributes:
        name: the op, as messages write it.
        plugin: who contributes the rule; `torch` for torch's own.
        owner: distribution, version and place of the rule.
        op: the overload; None while it does not exist.
        rule: what is asked for rows; None if `problem` or `whole_calls` says why it cannot be.
        entry: what torch's tables hold while the rule is in force; None for torch's own.
        schema_info: what is in torch's cache key; None: everything.
        allow_uneven_sharding: as the author said.
        allow_empty_pieces: likewise.
        whole_calls: why rows cannot be judged one by one, so that only calls on DTensors are;
            empty if rows can.
        samples: the author's, or None.
        problem: why there is nothing to ask, empty otherwise.
    """

    name: str
    plugin: str
    owner: str
    op: OpOverload | None = None
    rule: Rule | None = None
    entry: Entry | None = None
    schema_info: Any = None
    allow_uneven_sharding: bool = False
    samples: Callable[[], Iterable[Any]] | None = None
    problem: str = ""
    allow_empty_pieces: bool = True
    whole_calls: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What tells a target from others: two plugins may have rules for one op."""
        return self.plugin, self.name


def find_targets(settings: Settings, patterns: Sequence[str] = ()) -> list[Target]:
    """Find the rules that patterns name, sorted by plugin and op.

    Args:
        settings: who takes part; what is switched off or shadowed is verified nevertheless, if
            its plugin is loaded.
        patterns: each a plugin or distribution, a glob of ops or of packets, or
            `plugin:op-glob`; `torch` names torch's own rules. None: all rules of all plugins.

    Raises:
        SettingsError: for a pattern that names nothing.
        RegistryError: whatever `discover` raises.
    """
    discovery = discover(settings)
    wanted = [_read_pattern(pattern, discovery) for pattern in patterns] or [_Pattern()]
    targets = list(_of_plugins(discovery, settings))
    if any(pattern.plugin == TORCH for pattern in wanted):
        targets += _of_torch()
    found: dict[tuple[str, str], Target] = {}
    for pattern in wanted:
        matching = [target for target in targets if pattern.matches(target)]
        if not matching and pattern != _Pattern():
            names = [target.name for target in targets]
            raise SettingsError(
                f"nobody has a rule for {pattern}; {nearest(pattern.glob, names[:5000])}"
                if len(names) < 20
                else f"nobody has a rule for an op that matches {str(pattern)!r}.\n"
                "  List all that plugins have rules for:  dtensor-registry ops"
            )
        found.update((target.key, target) for target in matching)
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Whose rules are meant, and for which ops."""

    plugin: str = ""
    distribution: str = ""
    glob: str = "*"

    def matches(self, target: Target) -> bool:
        if self.plugin and target.plugin != self.plugin:
            return False
        packet = ".".join(target.name.split(".")[:2])
        return fnmatchcase(target.name, self.glob) or fnmatchcase(packet, self.glob)

    def __str__(self) -> str:
        return f"{self.plugin}:{self.glob}" if self.plugin else self.glob


def _read_pattern(text: str, discovery: Discovery) -> _Pattern:
    name, _, glob = text.replace("::", ".").partition(":")
    if name == TORCH:
        return _Pattern(TORCH, glob=glob or "*")
    for plugin in discovery.plugins:
        if plugin.answers_to(name):
            if plugin.state != "active":
                raise SettingsError(f"{plugin} is {plugin.state}: {plugin.reason}")
            return _Pattern(plugin.name, glob=glob or "*")
    if glob or "." not in name:
        known = [*(p.name for p in discovery.plugins), TORCH]
        raise SettingsError(
            f"{name!r} is neither a plugin nor a glob of ops; {nearest(name, known)}"
        )
    return _Pattern(glob=name)


def _of_plugins(discovery: Discovery, settings: Settings) -> Iterator[Target]:
    # Conflicts are the business of `install`; only `like` needs to know who wins.
    lenient = settings.model_copy(update={"on_conflict": "skip"})
    catalog = TorchCatalog()
    resolution = resolve(discovery, lenient, catalog)
    for contribution in discovery.contributions:
        overloads = catalog.overloads(contribution.op)
        if not overloads:
            yield Target(
                contribution.op,
                contribution.origin.plugin,
                str(contribution.origin),
                problem="the op does not exist: its library is not imported, or torch lacks it",
            )
        forms = list(overloads)
        if contribution.strategy.variants:
            forms += (form for op in overloads for form in catalog.variants(op))
        for op in forms:
            if _corrects_nothing(op, contribution):
                continue
            if str(op) == contribution.op or not _named(discovery, contribution, str(op)):
                yield _of_contribution(op, contribution, resolution)


def _corrects_nothing(op: OpOverload, contribution: Contribution) -> bool:
    """Say whether a contribution corrects rows that this torch does not have."""
    corrects = isinstance(contribution.strategy.rule, Without)
    return corrects and TorchCatalog().torch_table(op) != CORRECTED_TABLE


def _named(discovery: Discovery, wide: Contribution, name: str) -> bool:
    """Say whether the plugin that reaches an op by packet or variant claims it by name, too."""
    return any(
        other.op == name and other.origin.plugin == wide.origin.plugin
        for other in discovery.contributions
    )


def _of_contribution(op: OpOverload, contribution: Contribution, resolution: Resolution) -> Target:
    strategy = contribution.strategy
    samples = samples_of(strategy, op)
    if samples is not None and op not in TorchCatalog().overloads(contribution.op):
        samples = partial(_in_form_of, op, samples)
    owner = (str(op), contribution.origin.plugin, str(contribution.origin))
    try:
        entry = single_dim_entry(op, contribution, resolution)
    except MisfitError as error:
        return Target(*owner, op, problem=str(error))
    if isinstance(strategy.rule, Without):
        return Target(
            *owner,
            op,
            as_plugin_rule(op, entry.rule.func),
            entry,
            entry.schema_info,
            entry.rule.allow_uneven_sharding,
            samples,
        )
    if isinstance(strategy.rule, Amended):
        why = "torch's own rule is amended, for some calls: there are no rows to judge"
        return Target(*owner, op, entry=entry, samples=samples, whole_calls=why)
    changes = strategy.local_arguments is not None
    return Target(
        *owner,
        op,
        entry.rule.func.rule,  # as `like` was followed
        entry,
        strategy.schema_info,
        strategy.allow_uneven_sharding,
        samples,
        allow_empty_pieces=strategy.allow_empty_pieces,
        whole_calls="a rank passes other arguments than the whole call" if changes else "",
    )


def _in_form_of(op: OpOverload, samples: Callable[[], Iterable[Any]]) -> Iterable[Sample]:
    """Turn the author's calls of an op into calls of one of its variants."""
    return derived_calls(op, [sample_of(given) for given in samples()])


def entries_beneath(settings: Settings) -> dict[OpOverload, Entry]:
    """Make what torch's tables hold with everything installed.

    Raises:
        RegistryError: whatever `discover` raises.
    """
    lenient = settings.model_copy(update={"on_conflict": "skip"})
    return Winners(discover(settings), lenient).entries()


def _of_torch() -> Iterator[Target]:
    """torch's own rules on one mesh dim, whatever the host has written over them."""
    owner = f"torch {torch.__version__}"
    for op in list(getattr(propagator(), SINGLE_DIM)):
        info = LEDGER.original(SINGLE_DIM, op)
        if info is not None:
            yield Target(
                str(op),
                TORCH,
                owner,
                op,
                as_plugin_rule(op, info.func),
                schema_info=torch_schema_info(op),
                allow_uneven_sharding=info.allow_uneven_sharding,
            )
