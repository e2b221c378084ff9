"""`install()`: discover, resolve, and put the outcome on loan in torch's tables."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from dtensor_registry.discovery import Discovery, PluginWarning, discover
from dtensor_registry.discovery.load import refuse_nested
from dtensor_registry.errors import SettingsError
from dtensor_registry.explanation import Explanation
from dtensor_registry.fingerprint import Fingerprint, digest_of, of_installation
from dtensor_registry.installation import rank_check
from dtensor_registry.installation.rank_notices import Notice
from dtensor_registry.lock.capture import check_lock
from dtensor_registry.resolution import Resolution, check_pins_are_used, is_left_to_torch, obeying
from dtensor_registry.settings import Settings, read_settings
from dtensor_registry.torch_patch.fallback import FallbackPolicy
from dtensor_registry.torch_patch.import_guard import watch
from dtensor_registry.torch_patch.interrupts import Interrupts
from dtensor_registry.torch_patch.layers import INSTALLATIONS, Layer
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.program_rules import origins
from dtensor_registry.torch_patch.unknown_ops import unknown_ops
from dtensor_registry.torch_patch.winners import Winners
from dtensor_registry.torch_runtime.process_group_store import Meeting, meeting_of, meeting_on


class Installation:
    """Strategies in force, until `uninstall()` or the end of a `with` block.

    Attributes:
        settings: what decided.
        discovery: what plugins contributed.
        of_plugins: who won each op among plugins and torch, and why.
        left_out: a message for each rule that does not fit its op, as that is in this torch.
        decides_by: what the fingerprint is made of.
    """

    def __init__(self, settings: Settings, discovery: Discovery, momentary: bool = False) -> None:
        winners = Winners(discovery, settings)
        entries = winners.entries()
        check_pins_are_used(winners.resolution, settings)
        self.settings = settings
        self.discovery = discovery
        self.of_plugins = winners.resolution
        self.left_out = winners.left_out()
        self.decides_by = of_installation(settings, discovery, winners.resolution)
        self._layer = Layer(
            "an installation",
            height=INSTALLATIONS,
            entries=entries,
            adopts=settings.torch_rules,
            pending=winners.late,
            missing=FallbackPolicy(winners.resolution.fallbacks, settings),
            before_decomposition=settings.fallback.before_decomposition,
            pinned_to_torch=partial(is_left_to_torch, settings=settings),
            links=settings.links,
            parts=self.decides_by.parts,
            met=None if settings.check_ranks == "off" else self._meet,
            momentary=momentary,
        )
        self._notices: dict[DeviceMesh, Notice | None] = {}
        self._holders = 0

    @property
    def resolution(self) -> Resolution:
        """Who won each op, and why; what the program itself registers is above all plugins."""
        return obeying(self.of_plugins, origins())

    @property
    def active(self) -> bool:
        """Whether its strategies are in force."""
        return self._layer in LOAN.layers

    @property
    def place(self) -> int:
        """Position among what is in force, counted from below."""
        return LOAN.layers.index(self._layer)

    @property
    def fingerprint(self) -> str:
        """Hash of what decides a sharding: torch, host, settings, and each op's owner and rule.

        Two processes with equal fingerprints decide alike. What it is made of is `decides_by`.
        """
        return self.decides_by.digest

    def check_ranks(self, group: Any = None, timeout: float = rank_check.TIMEOUT) -> None:
        """Make sure that every rank decides alike; call it on every rank of the group.

        Compared is what is in force in the process: this installation, others, and what the
        process registered by hand. Ranks meet over the store of the process group, so no
        collective of the program can be mistaken for theirs.

        Args:
            group: a process group; None: all ranks.
            timeout: seconds that a rank may be late.

        Raises:
            InstallError: without a process group.
            MissingRanksError: naming ranks that did not come in time.
            RanksDisagreeError: on every rank alike, naming for groups of ranks what differs.
        """
        meeting = meeting_of(group)
        if meeting is not None:
            self._compare(meeting, timeout)

    def _meet(self, mesh: DeviceMesh) -> None:
        """Compare the ranks of a mesh when it is first used, and look at what they found since."""
        if mesh in self._notices:
            notice = self._notices[mesh]
            if notice is not None:
                notice.look_again()
            return
        meeting = meeting_on(mesh)
        if meeting is not None and self.settings.check_ranks == "wait":
            self._compare(meeting)
            meeting = None
        notice = self._notices[mesh] = None if meeting is None else Notice(self._ours(), meeting)
        if notice is not None:
            notice.publish()

    def _compare(self, meeting: Meeting, timeout: float = rank_check.TIMEOUT) -> None:
        rank_check.compare(self._ours(), meeting, timeout)

    def _ours(self) -> Fingerprint:
        """Take down what is in force in this process, other installations and rules included."""
        return Fingerprint(LOAN.parts() or self.decides_by.parts)

    def uninstall(self) -> None:
        """Give torch's tables back exactly as they were, once the last holder lets go.

        Raises:
            InstallError: inside a dispatch of this thread.
            OverwrittenEntryError: if other code wrote over entries meanwhile; those are left
                as found, all others are restored.
        """
        with LOAN.lock:
            if self._holders > 1:
                self._holders -= 1
                return
            try:
                LOAN.remove(self._layer)
            finally:
                _drop_ended()

    def explain(
        self,
        op: Any,
        *inputs: Any,
        mesh: Any = None,
        most: int | None = 10,
        why_not: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> Explanation:
        """Say why a call is sharded as it is while this installation is in force.

        Args:
            op: as for `dtensor_registry.explain`, as are the others.
            inputs: DTensors, or tensors as text, and other arguments.
            mesh: for tensors that are no DTensors.
            most: how many choices to list; None: all.
            why_not: choices to ask about.
            kwargs: arguments by name.
        """
        from dtensor_registry.explanation.explain import explain_arguments, wanted

        self.hold()
        try:
            told = wanted(most, why_not)
            return explain_arguments(op, inputs, kwargs, mesh, told, self)
        finally:
            self.uninstall()

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()

    def __str__(self) -> str:
        state = "active" if self.active else "not active"
        return f"installation ({state}) of {len(self._layer.entries)} ops\n{self.discovery}"

    def hold(self) -> None:
        """Put the strategies in force, or count one more who wants them to stay so.

        Raises:
            InstallError: inside a dispatch of this thread.
        """
        with LOAN.lock:
            if self.active:
                self._holders += 1
                return
            self._holders = 1  # those who held it before it was taken out do so no more
            LOAN.add(self._layer)
            _drop_ended()
            _installations.append(self)


LOAN.hash_rule = digest_of

_installations: list[Installation] = []
"""What is in force in this process: to install the same twice is to hold it twice."""


def _drop_ended() -> None:
    _installations[:] = [held for held in _installations if held.active]


def in_force() -> Installation | None:
    """Find the uppermost installation of this process, if there is one."""
    active = [held for held in _installations if held.active]
    return max(active, key=lambda held: held.place, default=None)


def install(settings: Settings | None = None, **overrides: Any) -> Installation:
    """Discover plugins, resolve who wins each op, and put the winners' rules in force.

    Installing again with the same settings holds the same installation; each holder lets go
    with `uninstall()`. Other settings hold until they are uninstalled, in place of
    those of an installation below, whatever these say; then those hold again.

    Args:
        settings: ready-made settings; None reads them from the environment and files.
        overrides: single settings that win over environment and files, for example
            `order=["acme", "*", "torch"]`.

    Raises:
        SettingsError: for a setting that is unknown or unusable, for `settings` that are none,
            or for single settings beside them.
        BrokenPluginsError: if a plugin cannot be used; nothing is installed.
        ConflictingStrategiesError: if two plugins of equal rank claim an op.
        RequiredPluginError: if a required distribution is missing.
        UnsupportedTorchError: if this torch lacks private names that the host needs.
        InstallError: inside a dispatch, or while another thread loads a plugin.
        MisfitError: if a rule does not fit an op that its own author defines, or does not fit
            and the settings require or pin it; any other that does not fit is left out with a
            `PluginWarning`.
        LockMismatchError: if the lock file of the settings has something else.
    """
    if not isinstance(settings, Settings | None):
        raise SettingsError(
            f"install(): what is of type {type(settings).__name__} is no Settings; single settings"
            " are passed by name\n"
            '  Write:  install(order=["acme", "*", "torch"])  or  install(**{...})'
        )
    if settings is not None and overrides:
        raise SettingsError(
            f"install(): {', '.join(overrides)} beside ready-made settings would not be read\n"
            "  Write:  install(read_settings(...))  with all of them, or pass them by name alone"
        )
    chosen = settings if settings is not None else read_settings(**overrides)
    refuse_nested()  # before the lock, which the thread that loads a plugin holds
    with LOAN.lock, _uncollected():
        held = _held(chosen) or Installation(chosen, discover(chosen, watch))
        if not held.active:
            check_lock(chosen, held.discovery, held.of_plugins)
            for note in (*held.left_out, *unknown_ops(held.resolution)):
                warnings.warn(note, PluginWarning, stacklevel=2)
        return _put_in_force(held)


def install_for_a_moment(settings: Settings) -> Installation:
    """Install for a tool that looks at what would be: compiled code stays, nothing is warned of.

    Raises:
        BrokenPluginsError: as `install`, for whatever keeps the plugins from being used.
    """
    refuse_nested()
    with LOAN.lock, _uncollected():
        return _put_in_force(Installation(settings, discover(settings, watch), momentary=True))


def _held(settings: Settings) -> Installation | None:
    """Find what is in force with the same settings."""
    key = settings.model_dump_json()
    same = (held for held in _installations if held.settings.model_dump_json() == key)
    return next((held for held in same if held.active), None)


def _put_in_force(installation: Installation) -> Installation:
    is_held = False
    try:
        with Interrupts():
            installation.hold()
            is_held = True
    except BaseException:
        if is_held:
            installation.uninstall()  # the caller gets the exception, and no handle
        raise
    return installation


@contextmanager
def _uncollected() -> Iterator[None]:
    """Put off the search for garbage, which among all of torch's objects takes as long again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
