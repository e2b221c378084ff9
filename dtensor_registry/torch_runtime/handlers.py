"""Ops that torch runs by a handler of its own, which a plugin's rule may replace.

A handler is asked before every table. Some do not redistribute what torch's own rule for the op
asks for: they are right where that rule moves nothing, and there they stay in force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import Shard, _sharding_prop
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema

from dtensor_registry.torch_runtime import decide, rule_epoch
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.call import tensor_specs
from dtensor_registry.torch_runtime.decision import HANDLER, Decision, report
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry.torch_runtime.execute import Executor


@dataclass(frozen=True, slots=True, eq=False)
class HandlerOrRule:
    """torch's handler where torch's own rule moves nothing; a plugin's rule elsewhere.

    Attributes:
        handler: torch's.
        info: torch's single-dim rule for the op, or None.
        executor: runs the op by the plugin's rule.
    """

    handler: Callable[..., Any]
    info: Any
    executor: Executor

    def __call__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one call."""
        schema = read_arguments(op, args, kwargs or {}, self.executor.schema_info).schema
        if not self.stays(schema):
            return self.executor(op, args, kwargs or {})
        report(Decision(schema, owner=HANDLER))
        return self.handler(op, args, kwargs or {})

    def stays(self, schema: OpSchema) -> bool:
        """Say whether torch's handler runs a call right: its own rule moves nothing."""
        try:
            return _stays(self, rule_epoch.current(), schema)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            return self.asked(schema)

    def asked(self, schema: OpSchema) -> bool:
        """Ask torch's rule whether it would move anything."""
        if self.info is None:
            return False
        described = propagator()._wrap_with_op_strategy(schema)
        specs = [sources[0] for sources in tensor_specs(described)]
        if any(_cut_twice(spec) for spec in specs):
            return False  # torch's handlers read `dim_map`, which cannot say so and raises
        meta = propagator()._propagate_tensor_meta_non_cached(schema)
        try:
            expanded = decide.TORCH_EXPAND(specs[0].mesh, described, self.info, meta)
            strategies = expanded(schema.op, described.args_meta, described.kwargs_meta)
            chosen = _sharding_prop._select_min_cost_strategy(strategies, schema)
        except (RuntimeError, ValueError, NotImplementedError):
            return False  # torch finds no way: the plugin's rule may
        wanted = chosen.input_specs or ()
        return all(spec.placements == to.placements for spec, to in zip(specs, wanted, strict=True))


def handler_name(handler: Any) -> str:
    """Write where a handler is defined, as a strategy names the one that it replaces."""
    module, name = getattr(handler, "__module__", "?"), getattr(handler, "__qualname__", "?")
    return f"{module}.{name}"


def _cut_twice(spec: DTensorSpec) -> bool:
    """Say whether two mesh dims cut one dim of a tensor."""
    cut = [p.dim for p in spec.placements if isinstance(p, Shard)]
    return len(cut) > len(set(cut))


@lru_cache(maxsize=4096)
def _stays(replaced: HandlerOrRule, epoch: int, schema: OpSchema) -> bool:
    return replaced.asked(schema)
