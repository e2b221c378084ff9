"""What is in force comes in layers: entries for torch's tables that come and go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
from torch.distributed.tensor._ops.single_dim_strategy import _SingleDimStrategyInfo

from dtensor_registry.settings import LinkSettings
from dtensor_registry.torch_patch.program_rules import Registered
from dtensor_registry.torch_patch.table_patcher import ABSENT, HANDLERS, Cell
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.decision import Specs
from dtensor_registry.torch_runtime.execute import Executor
from dtensor_registry.torch_runtime.handlers import HandlerOrRule
from dtensor_registry.torch_runtime.installed_rule import InstalledRule


@dataclass(frozen=True, slots=True)
class Entry:
    """How one op is sharded while a layer rules it.

    Attributes:
        rule: a single-dim rule, a function `(op_schema) -> OpStrategy` for the whole mesh, or what
            is amended in torch's own way, which stays.
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
        if isinstance(self.rule, AmendedTorch) or isinstance(self.handler, HandlerOrRule):
            return info  # torch's own rule stays: torch or its handler is yet to ask it
        if isinstance(self.rule, _SingleDimStrategyInfo):
            return info | {("op_single_dim_strategy_funcs", op): self.rule}
        return info | {
            ("op_single_dim_strategy_funcs", op): ABSENT,
            ("op_strategy_funcs", op): self.rule,
        }

    @property
    def falls_back(self) -> bool:
        """Whether this is a fallback's, which any rule of any layer goes before."""
        return getattr(getattr(self.rule, "func", None), "fallback", None) is not None

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


INSTALLATIONS = 0
"""Height of installations, of which the latest covers the others altogether."""

REGISTRATIONS = 1
"""Height of what the process or the program registers by hand; the latest is uppermost."""

SCOPES = 2
"""Height of the layers that come and go often; compiled code is not dropped for them."""


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
        pinned_to_torch: says whether the user pinned an op, by its name, to torch; None: no op is.
        links: what the user says of the speed of mesh dims.
        parts: (name, value) of what the layer decides by, for ranks and caches to compare.
        program: what the program registered by torch's `register_sharding`, if that made the layer.
        replaced: what torch had before that; None if it was registered before the host hooked in.
        met: called when a mesh is used, to compare its ranks; None: they are not compared.
        momentary: whether the layer is there for a tool alone: compiled code is not dropped.
    """

    name: str
    height: int
    entries: dict[OpOverload, Entry] = field(default_factory=dict)
    adopts: bool = False
    pending: Callable[[OpOverload], Entry | None] | None = None
    missing: Callable[[OpOverload, Specs], Entry | None] | None = None
    before_decomposition: bool = False
    pinned_to_torch: Callable[[str], bool] | None = None
    links: Mapping[str, LinkSettings] = field(default_factory=dict)
    parts: tuple[tuple[str, str], ...] = ()
    program: Registered | None = None
    replaced: Mapping[Cell, Any] | None = None
    met: Callable[[DeviceMesh], None] | None = None
    momentary: bool = False


def put_in(layer: Layer, layers: list[Layer]) -> list[Layer]:
    """Put a layer above all others of its height and below."""
    above = sum(other.height <= layer.height for other in layers)
    return [*layers[:above], layer, *layers[above:]]


def is_lasting(layer: Layer) -> bool:
    """Say whether code that was compiled before a layer came or went no longer holds."""
    was_there = layer.program is not None and layer.replaced is None
    return layer.height < SCOPES and not (was_there or layer.momentary)


def uncovered(layers: list[Layer]) -> list[Layer]:
    """Leave installations out that a later one covers."""
    covered = [layer for layer in layers if layer.height == INSTALLATIONS][:-1]
    return [layer for layer in layers if layer not in covered]
