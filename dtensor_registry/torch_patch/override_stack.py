"""What is installed at the moment: layers of rules, written to torch's tables as one loan.

The lowest layer is an installation, above it what this process registered by hand, on top
the scopes of contexts. The uppermost layer that has an op rules it. Of several installations
the uppermost alone counts: its settings decide, whatever those below it say. After any change
the tables are made to hold exactly what the layers say, so undoing in any order, nesting and
exceptions need no care of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._op_schema import OpSchema

from dtensor_registry.discovery.load import refuse_beside_loading
from dtensor_registry.errors import InstallError, OverwrittenEntryError
from dtensor_registry.torch_patch import (
    cache_invalidation,
    compile_caches,
    decompositions,
    program_rules,
)
from dtensor_registry.torch_patch.dispatch_hooks import DispatchHooks, in_dispatch
from dtensor_registry.torch_patch.interrupts import Interrupts
from dtensor_registry.torch_patch.layers import (
    REGISTRATIONS,
    SCOPES,
    Entry,
    Layer,
    is_lasting,
    put_in,
    uncovered,
)
from dtensor_registry.torch_patch.owner import owner_of
from dtensor_registry.torch_patch.program_rules import Registered
from dtensor_registry.torch_patch.table_patcher import LEDGER, Cell, has_rule
from dtensor_registry.torch_runtime import decide, move_prices
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.decision import Owner, Specs, specs_in
from dtensor_registry.torch_runtime.execute import Executor
from dtensor_registry.torch_runtime.schema import runtime_schema_info

LOOKING = ContextVar("dtensor_registry_looking", default=False)
"""Whether calls are dispatched only to look at them: no other rank does the same."""


@lru_cache(maxsize=64)
def hash_of(parts: tuple[tuple[str, str], ...]) -> str:
    """Hash what is decided by.

    Args:
        parts: (name, value).

    Returns:
        SHA-256, in hexadecimal.
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Loan:
    """The layers of this process and the only hand that writes them to torch.

    Attributes:
        lock: held while layers change.
        hash_rule: hashes what the program registers, for ranks and caches to compare.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hash_rule: Callable[[Any], str] = repr
        self._layers: list[Layer] = []
        self._hooks = DispatchHooks(self)
        self._hooked = False

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Layers from the lowest to the uppermost."""
        return tuple(self._layers)

    @property
    def uncovered(self) -> list[Layer]:
        """The layers that count: all but installations that a later one covers."""
        return uncovered(self._layers)

    def parts(self) -> tuple[tuple[str, str], ...]:
        """What the process decides by; a name that several layers have is said to be of each."""
        named: dict[str, str] = {}
        last: dict[str, str] = {}
        for number, layer in enumerate(self.uncovered):
            for name, value in layer.parts:
                if last.get(name) != value:
                    named[name if name not in named else f"{name} (layer {number})"] = value
                last[name] = value
        return tuple(named.items())

    def add(self, layer: Layer) -> None:
        """Put a layer in force.

        Raises:
            InstallError: inside a dispatch of this thread, or while another loads a plugin.
        """
        self.refuse_in_dispatch(f"add {layer.name}")
        refuse_beside_loading()
        self._tell_compiled(layer)
        try:
            with self.lock, Interrupts():
                self._rewrite(self._obeying(put_in(layer, self._layers)))
        except BaseException:
            self.remove(layer)  # whoever asked gets the exception, and no handle
            raise

    def remove(self, layer: Layer) -> None:
        """Take a layer out; everything it covered is in force again.

        Raises:
            InstallError: inside a dispatch of this thread.
            OverwrittenEntryError: if other code wrote over entries of the loan; the layer is
                out nevertheless.
        """
        self.refuse_in_dispatch(f"remove {layer.name}")
        with self.lock, Interrupts():
            if layer not in self._layers:
                return
            if layer.replaced is not None:
                LEDGER.give(layer.replaced)
            kept = [other for other in self._layers if other is not layer]
            foreign = self._rewrite(self._obeying(kept))
        if foreign:
            raise OverwrittenEntryError(foreign)

    def refuse_in_dispatch(self, change: str) -> None:
        """Refuse a change while this thread makes a decision.

        Raises:
            InstallError: for that.
        """
        if in_dispatch():
            raise InstallError(
                f"cannot {change}: this thread is inside the dispatch of an op (a rule, a fallback"
                " or a fake kernel is running), where torch's caches must not change.\n"
                "  Make the change before or after the call."
            )

    def entries(self) -> Mapping[Layer, Mapping[OpOverload, Entry]]:
        """Copy what each layer has, those that were bound because an op was called included."""
        return {layer: dict(layer.entries) for layer in self._layers}

    def put_back(self, before: Mapping[Layer, Mapping[OpOverload, Entry]]) -> None:
        """Take out of the layers what was bound since `entries()`."""
        with self.lock, Interrupts():
            bound = [layer for layer in self._layers if layer.entries != before.get(layer)]
            for layer in bound:
                layer.entries = dict(before.get(layer, layer.entries))
            if bound:
                self._rewrite(self._layers)

    def register(self, known: Registered) -> None:
        """Obey what the program registers by torch's `register_sharding`, now and after undoing.

        Raises:
            InstallError: inside a dispatch of this thread.
        """
        self.refuse_in_dispatch(f"register a sharding of {known.op}")
        with self.lock, Interrupts():
            before = program_rules.held_before(known)
            try:
                LEDGER.give(known.cells())
                layer = self._layer_of(known)
                layer.replaced = before
                self._rewrite(self._obeying(put_in(layer, self._layers)))
            except BaseException:
                LEDGER.give(before)
                raise

    def _obeying(self, layers: list[Layer]) -> list[Layer]:
        """Make layers hold what the program has registered; no layers stay none.

        What was registered while nothing of the host's was in force is below other registrations.
        """
        known = program_rules.registered()
        kept = [layer for layer in layers if layer.program is None or _is_in(known, layer.program)]
        if all(layer.program is not None for layer in kept):
            return []
        for layer in kept:
            if layer.program is not None:
                del known[layer.program.op]
        below = sum(layer.height < REGISTRATIONS for layer in kept)
        return [*kept[:below], *map(self._layer_of, known.values()), *kept[below:]]

    def _layer_of(self, known: Registered) -> Layer:
        rule = f"{known.origin.plugin}, rule {self.hash_rule(known.function)}"
        return Layer(
            f"register_sharding({known.op})",
            height=REGISTRATIONS,
            entries={known.op: Entry(known.strategy, runtime_schema_info(known.op, None))},
            parts=((f"op {known.op}", rule),),
            program=known,
        )

    def meet(self, schema: OpSchema | None) -> None:
        """Have the ranks of a call's mesh compared, where a layer asks for it."""
        if LOOKING.get():
            return
        for layer in self.uncovered:
            if layer.met is not None:
                for spec in specs_in(schema)[:1]:
                    layer.met(spec.mesh)

    def bind_pending(self, op: OpOverload) -> bool:
        """Give an op that came into being after its rule was contributed that rule."""
        for layer in reversed(self.uncovered):
            known = layer.entries.get(op)
            if known is not None and not known.falls_back:
                return False
            # A layer's own fallback was bound after the layer had nothing pending.
            if layer.pending is not None and known is None:
                entry = layer.pending(op)
                if entry is not None:
                    self._bind(layer, op, entry)
                    return True
        return False

    def bind_unshaped(self, op: OpOverload, specs: Specs) -> bool:
        """Let the host run an op whose output shapes torch cannot know, if it has a rule for it."""
        found = self.find(op)
        if found is None:
            return self.bind_missing(op, specs, executed=True)
        layer, entry = found
        if entry.executor is None:
            return False
        self._bind(layer, op, entry.executed())
        return True

    def bind_missing(
        self,
        op: OpOverload,
        specs: Specs,
        executed: bool = False,
        early: bool = False,
    ) -> bool:
        """Give an op for which torch found no rule a fallback, if a layer has one for it."""
        for layer in reversed(self.uncovered):
            if layer.missing is not None and (layer.before_decomposition or not early):
                entry = layer.missing(op, specs)
                if entry is not None:
                    self._bind(layer, op, entry.executed() if executed else entry)
                    return True
        return False

    def bind_early(self, op: OpOverload, specs: Specs) -> bool:
        """Give an op without a rule a fallback of a layer whose fallbacks precede decomposition."""
        if not any(layer.before_decomposition for layer in self.uncovered) or has_rule(op):
            return False
        return self.bind_missing(op, specs, early=True)

    def amended(self, op: OpOverload) -> AmendedTorch | None:
        """Find what a plugin amends in torch's own way to run an op."""
        found = self.find(op)
        if found is None or not isinstance(found[1].rule, AmendedTorch):
            return None
        return found[1].rule

    def executor(self, op: OpOverload) -> Executor | None:
        """Make what runs an op by the rule of the layer that rules it."""
        found = self.find(op)
        return None if found is None else found[1].executor

    def is_left_to_torch(self, op: OpOverload) -> bool:
        """Say whether the settings of a layer in force pin an op to torch."""
        pinned = (layer.pinned_to_torch for layer in self.uncovered)
        return any(is_pinned(str(op)) for is_pinned in pinned if is_pinned is not None)

    def find(self, op: OpOverload) -> tuple[Layer, Entry] | None:
        """Find the layer that rules an op and its entry there."""
        having = [layer for layer in reversed(self.uncovered) if op in layer.entries]
        ruling = [layer for layer in having if not layer.entries[op].falls_back]
        return next(((layer, layer.entries[op]) for layer in (*ruling, *having)), None)

    def owner(self, op: OpOverload) -> Owner:
        """Say who decides an op."""
        found = self.find(op)
        return (
            owner_of(op, None, None) if found is None else owner_of(op, found[1], found[0].program)
        )

    def _bind(self, layer: Layer, op: OpOverload, entry: Entry) -> None:
        """Give an op that had no rule its first one; safe inside a dispatch.

        A call without a rule raises, and torch caches no exceptions: nothing to clear.
        """
        with self.lock, Interrupts():
            before = dict(layer.entries)
            try:
                layer.entries[op] = entry
                self._write(self._layers)
                cache_invalidation.renew(in_dispatch=True)
            except BaseException:
                layer.entries = before
                self._write(self._layers)
                raise

    def _rewrite(self, layers: list[Layer]) -> list[str]:
        """Make tables, hooks and caches what the layers ask for, or leave all as it was."""
        before = self._layers
        changed = set(before) ^ set(layers)
        # A scope without rules of its own, such as one for fallbacks, changes no table.
        same = bool(changed) and all(x.height == SCOPES and not x.entries for x in changed)
        try:
            foreign = [] if same else self._write(layers)
            self._layers = layers
            self._settle()
        except BaseException:
            self._layers = before
            self._write(before)
            self._settle(afresh=True)
            raise
        if any(map(is_lasting, changed)):
            compile_caches.drop_compiled()
        return foreign

    def _settle(self, afresh: bool = False) -> None:
        """Make hooks and caches what the layers ask for.

        Args:
            afresh: hooks may be half in, half out.
        """
        if self._hooked and (afresh or not self._layers):
            setattr(_sharding_prop, decide.EXPAND, decide.TORCH_EXPAND)
            cache_invalidation.unhook()
            program_rules.unhook()
            decompositions.unhook()
            self._hooks.unhook()
            self._hooked = False
        if self._layers and not self._hooked:
            self._hooked = True  # from here on there is something to take out
            setattr(_sharding_prop, decide.EXPAND, decide.expand)
            cache_invalidation.hook_in(
                lambda schema: self.bind_missing(schema.op, specs_in(schema)),
                self.amended,
                self.owner,
            )
            program_rules.hook_in(self.register)
            decompositions.hook_in()
            self._hooks.hook_in()
        counting = self.uncovered
        adopts = any(layer.adopts for layer in counting)
        decide.adopt(adopts)
        decompositions.sort_candidates(adopts)
        move_prices.assume({name: link for layer in counting for name, link in layer.links.items()})
        compile_caches.mark(self._digest())
        cache_invalidation.renew(in_dispatch=False)
        self._hooks.forget()

    def _digest(self) -> str | None:
        """Hash what the layers decide by; None without layers."""
        if not self._layers:
            return None
        return hash_of(tuple((layer.name, hash_of(layer.parts)) for layer in self.uncovered))[:32]

    def _tell_compiled(self, layer: Layer) -> None:
        if layer.height >= SCOPES:
            compile_caches.warn_compiled("strategies that hold for a block")

    def _write(self, layers: list[Layer]) -> list[str]:
        ruling: dict[OpOverload, Entry] = {}
        fallbacks: dict[OpOverload, Entry] = {}
        for layer in uncovered(layers):
            for op, entry in layer.entries.items():
                (fallbacks if entry.falls_back else ruling)[op] = entry
        cells: dict[Cell, Any] = {}
        for op, entry in (fallbacks | ruling).items():
            cells.update(entry.cells(op))
        return LEDGER.write(cells)


def _is_in(known: Mapping[OpOverload, Registered], registered: Registered) -> bool:
    """Say whether a registration of the program is the one that torch has."""
    return registered.op in known and known[registered.op].strategy is registered.strategy


LOAN = Loan()
"""The one loan of this process."""

if hasattr(os, "register_at_fork"):
    # A child has only the thread that forked: a lock that another one holds would stay locked.
    os.register_at_fork(
        before=LOAN.lock.acquire,
        after_in_parent=LOAN.lock.release,
        after_in_child=LOAN.lock.release,
    )
