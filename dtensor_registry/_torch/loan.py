"""What is installed at the moment: layers of rules, written to torch's tables as one loan.

The lowest layer is an installation, above it what this process registered by hand, on top
the scopes of contexts. The uppermost layer that has an op rules it. After any change the
tables are made to hold exactly what the layers say, so undoing in any order, nesting and
exceptions need no care of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry._torch import decide, decompositions, freshness
from dtensor_registry._torch.execute import Executor
from dtensor_registry._torch.hooks import DispatchHooks, Specs, in_dispatch, specs_in
from dtensor_registry._torch.rule import InstalledRule
from dtensor_registry._torch.tables import ABSENT, HANDLERS, LEDGER, Cell, has_rule
from dtensor_registry.errors import InstallError, OverwrittenEntryError


@dataclass(frozen=True, slots=True)
class Entry:
    """How one op is sharded while a layer rules it.

    Attributes:
        rule: a single-dim rule, or a function `(op_schema) -> OpStrategy` for the whole mesh.
        schema_info: what is in torch's cache key.
        handler: runs the op in place of torch's own path, or None.
    """

    rule: Any
    schema_info: RuntimeSchemaInfo
    handler: Callable[..., Any] | None = None

    def cells(self, op: OpOverload) -> dict[Cell, Any]:
        """Say what torch's tables must hold; torch reads single-dim rules before all others."""
        # torch looks for schema info here first, whatever kind of rule answers.
        info: dict[Cell, Any] = {("op_to_schema_info", op): self.schema_info}
        if self.handler is not None:
            info[HANDLERS, op] = self.handler
        if isinstance(self.rule, _SingleDimStrategyInfo):
            return info | {("op_single_dim_strategy_funcs", op): self.rule}
        return info | {
            ("op_single_dim_strategy_funcs", op): ABSENT,
            ("op_strategy_funcs", op): self.rule,
        }

    @property
    def executor(self) -> Executor | None:
        """What runs the op by this entry's rule; None for a full-mesh function."""
        rule = getattr(self.rule, "func", None)
        if not isinstance(rule, InstalledRule):
            return None
        return Executor(rule, self.rule, self.schema_info)

    def executed(self) -> Entry:
        """Make the same entry for an op that the host is to run itself."""
        return replace(self, handler=self.executor)


@dataclass(eq=False, slots=True)
class Layer:
    """Entries that come and go together; compared by identity.

    Attributes:
        name: what it is, for people.
        height: 0 for installations, 1 for this process's own rules, 2 for contexts. A later
            layer goes above an earlier one of the same height.
        entries: by op.
        pending: finds the entry of an op that did not exist when the layer was made.
        adopts: whether torch's own rules are expanded by the host while the layer is in force.
        missing: finds an entry for an op that turned out to have no rule at all, from the
            call's tensors; the layer's fallback.
        before_decomposition: whether `missing` is asked before torch decomposes an op.
    """

    name: str
    height: int
    entries: dict[OpOverload, Entry] = field(default_factory=dict)
    adopts: bool = False
    pending: Callable[[OpOverload], Entry | None] | None = None
    missing: Callable[[OpOverload, Specs], Entry | None] | None = None
    before_decomposition: bool = False


class Loan:
    """The layers of this process and the only hand that writes them to torch."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._layers: list[Layer] = []
        self._hooks = DispatchHooks(self)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Layers from the lowest to the uppermost."""
        return tuple(self._layers)

    def add(self, layer: Layer) -> None:
        """Put a layer in force.

        Raises:
            InstallError: inside a dispatch of this thread.
        """
        self._refuse_in_dispatch(f"add {layer.name}")
        with self.lock:
            above = sum(other.height <= layer.height for other in self._layers)
            self._rewrite([*self._layers[:above], layer, *self._layers[above:]])

    def remove(self, layer: Layer) -> None:
        """Take a layer out; everything it covered is in force again.

        Raises:
            InstallError: inside a dispatch of this thread.
            OverwrittenEntryError: if other code wrote over entries of the loan; the layer is
                out nevertheless.
        """
        self._refuse_in_dispatch(f"remove {layer.name}")
        with self.lock:
            if layer not in self._layers:
                return
            foreign = self._rewrite([other for other in self._layers if other is not layer])
        if foreign:
            raise OverwrittenEntryError(foreign)

    def bind_pending(self, op: OpOverload) -> bool:
        """Give an op that came into being after its rule was contributed that rule."""
        for layer in reversed(self._layers):
            if op in layer.entries:
                return False
            if layer.pending is not None:
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
        for layer in reversed(self._layers):
            if layer.missing is not None and (layer.before_decomposition or not early):
                entry = layer.missing(op, specs)
                if entry is not None:
                    self._bind(layer, op, entry.executed() if executed else entry)
                    return True
        return False

    def bind_early(self, op: OpOverload, specs: Specs) -> bool:
        """Give an op without a rule a fallback of a layer whose fallbacks precede decomposition."""
        if not any(layer.before_decomposition for layer in self._layers) or has_rule(op):
            return False
        return self.bind_missing(op, specs, early=True)

    def executor(self, op: OpOverload) -> Executor | None:
        """Make what runs an op by the rule of the layer that rules it."""
        found = self.find(op)
        return None if found is None else found[1].executor

    def find(self, op: OpOverload) -> tuple[Layer, Entry] | None:
        """Find the layer that rules an op and its entry there."""
        for layer in reversed(self._layers):
            if op in layer.entries:
                return layer, layer.entries[op]
        return None

    def _bind(self, layer: Layer, op: OpOverload, entry: Entry) -> None:
        """Give an op that had no rule its first one; safe inside a dispatch.

        A call without a rule raises, and torch caches no exceptions: nothing to clear.
        """
        with self.lock:
            layer.entries[op] = entry
            self._write(self._layers)
            freshness.renew(in_dispatch=True)

    def _rewrite(self, layers: list[Layer]) -> list[str]:
        """Make tables, hooks and caches what the layers ask for, or leave all as it was."""
        foreign = self._write(layers)
        before, self._layers = self._layers, layers
        if layers and not before:
            setattr(_sharding_prop, decide.EXPAND, decide.expand)
            freshness.hook_in(lambda schema: self.bind_missing(schema.op, specs_in(schema)))
            decompositions.hook_in()
            self._hooks.hook_in()
        elif before and not layers:
            setattr(_sharding_prop, decide.EXPAND, decide.TORCH_EXPAND)
            freshness.unhook()
            decompositions.unhook()
            self._hooks.unhook()
        decide.adopt(any(layer.adopts for layer in layers))
        freshness.renew(in_dispatch=False)
        self._hooks.forget()
        return foreign

    def _write(self, layers: list[Layer]) -> list[str]:
        ruling: dict[OpOverload, Entry] = {}
        for layer in layers:
            ruling.update(layer.entries)
        cells: dict[Cell, Any] = {}
        for op, entry in ruling.items():
            cells.update(entry.cells(op))
        return LEDGER.write(cells)

    def _refuse_in_dispatch(self, change: str) -> None:
        if in_dispatch():
            raise InstallError(
                f"cannot {change}: this thread is inside the dispatch of an op (a rule, a fallback"
                " or a fake kernel is running), where torch's caches must not change.\n"
                "  Make the change before or after the call."
            )


LOAN = Loan()
"""The one loan of this process."""
