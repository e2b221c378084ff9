"""The private names of torch that the host stands on, as data, checked before first use."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from packaging.version import Version

from dtensor_registry.errors import UnsupportedTorchError

TESTED = ("2.13.0", "2.14.1")
"""The oldest and the newest torch that the suite has run on; see docs/versions.md."""


@dataclass(frozen=True, slots=True)
class PrivateName:
    """One private name and what the host needs of it.

    Attributes:
        module: where it is imported from.
        path: attribute path inside the module.
        parameters: names that its signature must start with; None: it need only be there.
        since: the first torch that has it so, of those that the suite has run on.
        until: the first that has not; None: the last one has it.
    """

    module: str
    path: str
    parameters: tuple[str, ...] | None = None
    since: str = TESTED[0]
    until: str | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.path}"

    def belongs_to(self, version: str) -> bool:
        """Say whether a torch is to have this name; one that is newer than all tested is.

        >>> PrivateName("torch._C", "fork", since="2.14").belongs_to("2.13.0+cpu")
        False
        """
        release = Version(version).release
        return Version(self.since).release <= release and (
            self.until is None or release < Version(self.until).release
        )

    def problem(self) -> str | None:
        """Say what is wrong with this name in the running torch, or None."""
        if not self.belongs_to(torch.__version__):
            return None
        try:
            value: Any = importlib.import_module(self.module)
            for part in self.path.split("."):
                value = getattr(value, part)
        except (ImportError, AttributeError):
            return f"{self} is missing"
        if self.parameters is None:
            return None
        found = tuple(inspect.signature(value).parameters)
        if found[: len(self.parameters)] == self.parameters:
            return None
        return f"{self} takes ({', '.join(found)}), expected ({', '.join(self.parameters)}, ...)"


_TENSOR = "torch.distributed.tensor"

SURFACE = (
    PrivateName("torch._subclasses.fake_tensor", "DataDependentOutputException"),
    PrivateName("torch._subclasses.fake_tensor", "DynamicOutputShapeException"),
    PrivateName("torch._subclasses.fake_tensor", "UnsupportedOperatorException"),
    PrivateName("torch._subclasses.fake_tensor", "unset_fake_temporarily"),
    PrivateName("torch.fx.experimental.proxy_tensor", "disable_proxy_modes_tracing"),
    PrivateName("torch._C", "_dispatch_get_all_op_names"),
    PrivateName("torch._C", "_clear_DTensor_sharding_propagator_cache"),
    PrivateName("torch._library.custom_ops", "OPDEFS"),
    PrivateName("torch._ops", "OpOverload"),
    PrivateName("torch.utils._python_dispatch", "TorchDispatchMode"),
    PrivateName("torch.utils._pytree", "tree_leaves", ("tree", "is_leaf")),
    PrivateName("torch.utils._pytree", "tree_map", ("func", "tree")),
    PrivateName("torch.compiler.config", "_config"),
    PrivateName("torch.distributed.distributed_c10d", "_get_default_store", ()),
    PrivateName(f"{_TENSOR}._op_schema", "OpInfo"),
    PrivateName(f"{_TENSOR}._op_schema", "StrategyType"),
    PrivateName(f"{_TENSOR}", "DTensor._op_dispatcher"),
    PrivateName(f"{_TENSOR}._collective_utils", "MeshTopoInfo.build_from_mesh", ("mesh",)),
    PrivateName(
        f"{_TENSOR}._collective_utils", "redistribute_cost", ("current_spec", "target_spec")
    ),
    PrivateName(
        f"{_TENSOR}._decompositions",
        "DecompShardingStrategy._get_candidate_placements",
        ("op_schema",),
    ),
    PrivateName(f"{_TENSOR}._decompositions", "PlacementTrackingMode"),
    PrivateName(
        f"{_TENSOR}._dispatch",
        "OpDispatcher._propagate_op_sharding_dispatch_slow_path",
        ("self", "op_call", "args", "kwargs", "op_info", "try_cache"),
    ),
    PrivateName(
        f"{_TENSOR}._dispatch",
        "OpDispatcher._dispatch_get_local_results_slow_path",
        ("self", "op_call", "args", "op_info"),
    ),
    PrivateName(
        f"{_TENSOR}._dispatch", "OpDispatcher.unwrap_to_op_info", ("self", "op_call", "args")
    ),
    PrivateName(f"{_TENSOR}._dtensor_spec", "DTensorSpec", ("mesh", "placements", "tensor_meta")),
    PrivateName(f"{_TENSOR}._dtensor_spec", "TensorMeta", ("shape", "stride", "dtype")),
    PrivateName(f"{_TENSOR}._op_schema", "OpSchema", ("op", "args_schema", "kwargs_schema")),
    PrivateName(
        f"{_TENSOR}._op_schema", "OpSpec", ("output_specs", "input_specs", "redistribute_cost")
    ),
    PrivateName(f"{_TENSOR}._op_schema", "OpStrategy", ("strategies",)),
    PrivateName(
        f"{_TENSOR}._op_schema",
        "OutputSharding",
        (
            "output_spec",
            "redistribute_schema",
            "needs_redistribute",
            "use_val_from_redistribute_schema",
        ),
    ),
    PrivateName(
        f"{_TENSOR}._op_schema",
        "RuntimeSchemaInfo",
        ("static_argnum", "static_kwargkey", "needs_pytree"),
    ),
    PrivateName(f"{_TENSOR}._op_schema", "TupleStrategy", ("children",)),
    PrivateName(f"{_TENSOR}._ops.single_dim_strategy", "_ShardingPlaceholder", ("dim",)),
    PrivateName(f"{_TENSOR}._ops.single_dim_strategy", "_SingleDimStrategyInfo", ("func",)),
    PrivateName(
        f"{_TENSOR}._ops.single_dim_strategy",
        "_resolve_foreach_elementwise_overload",
        ("foreach_op",),
    ),
    PrivateName(
        f"{_TENSOR}._sharding_prop",
        "_expand_single_dim_strategy_to_mesh",
        ("mesh", "op_schema", "strategy_info", "output_tensor_meta"),
    ),
    PrivateName(
        f"{_TENSOR}._redistribute",
        "redistribute_local_tensor",
        ("local_tensor", "current_spec", "target_spec"),
    ),
    PrivateName(
        f"{_TENSOR}._dispatch", "OpDispatcher._try_replicate_spec_for_scalar_tensor", ("self",)
    ),
    PrivateName(f"{_TENSOR}._dispatch", "OpDispatcher.wrap", ("res", "spec")),
    PrivateName(f"{_TENSOR}._sharding_prop", "_select_min_cost_strategy", ("strategy",)),
    PrivateName(
        f"{_TENSOR}._sharding_prop",
        "ShardingPropagator._propagate_tensor_meta_non_cached",
        ("self",),
    ),
    PrivateName(
        f"{_TENSOR}._sharding_prop", "ShardingPropagator._wrap_with_op_strategy", ("self",)
    ),
    PrivateName(f"{_TENSOR}._sharding_prop", "LocalLRUCache", ("user_function",)),
    PrivateName(
        f"{_TENSOR}._sharding_prop",
        "ShardingPropagator.propagate_op_sharding_non_cached",
        ("self", "op_schema"),
    ),
    PrivateName(f"{_TENSOR}.placement_types", "Shard._to_partial_tensor", since="2.14.1"),
    PrivateName(f"{_TENSOR}.placement_types", "_StridedShard", ("dim", "split_factor")),
    PrivateName("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack"),
)
"""Every private name that deciding, executing and installing use."""

TOOLS = (
    PrivateName("torch._C", "_current_autograd_node"),
    PrivateName("torch._C", "_dispatch_has_kernel_for_dispatch_key"),
    PrivateName("torch._C._autograd", "_get_sequence_nr"),
    PrivateName("torch._C._distributed_c10d", "FakeWork"),
    PrivateName("torch._C._distributed_c10d", "HashStore"),
    PrivateName("torch._C._distributed_c10d", "ProcessGroup"),
    PrivateName("torch._subclasses.fake_tensor", "FakeTensor"),
    PrivateName("torch._subclasses.fake_tensor", "FakeTensorMode"),
    PrivateName("torch.distributed._local_tensor", "LocalTensor"),
    PrivateName("torch.distributed._local_tensor", "LocalTensorMode"),
    PrivateName("torch.distributed._local_tensor", "local_tensor_mode"),
    PrivateName(f"{_TENSOR}._decompositions", "DecompShardingStrategy._get_fake_mesh"),
    PrivateName(
        f"{_TENSOR}._decompositions", "DecompShardingStrategy._propagate_through_decomp", ("self",)
    ),
    PrivateName(f"{_TENSOR}._random", "_rng_tracker"),
    PrivateName(f"{_TENSOR}._redistribute", "_gen_transform_infos", ("src_spec", "dst_spec")),
    PrivateName(f"{_TENSOR}._utils", "_compute_local_shape_and_global_offset"),
    PrivateName("torch.testing._internal.distributed.fake_pg", "FakeStore"),
    PrivateName("torch.utils._pytree", "tree_map_only"),
)
"""Private names that only `explain`, `audit` and `verify` use: jobs run without them."""

RULE_TABLES = ("op_single_dim_strategy_funcs", "op_strategy_funcs", "op_to_rules")
"""The tables in which torch looks for a rule, first read first."""

TABLES = (
    *RULE_TABLES,
    "op_to_schema_info",
    "op_to_schema_info_for_single_dim_strategy",
)
"""The dicts of torch's propagator that say how an op is sharded."""


def check_surface() -> None:
    """Hold every private name that the host uses against the running torch.

    Raises:
        UnsupportedTorchError: listing all names that are missing or have changed.
    """
    missing = list(_problems())
    if missing:
        raise UnsupportedTorchError(torch.__version__, missing)


def missing_tools() -> list[str]:
    """Say what `explain`, `audit` or `verify` would miss in the running torch."""
    return [problem for name in TOOLS if (problem := name.problem()) is not None]


def _problems() -> Iterator[str]:
    for name in SURFACE:
        problem = name.problem()
        if problem is not None:
            yield problem
    dispatcher = getattr(torch.distributed.tensor.DTensor, "_op_dispatcher", None)
    propagator = getattr(dispatcher, "sharding_propagator", None)
    for table in TABLES:
        if not isinstance(getattr(propagator, table, None), dict):
            yield f"ShardingPropagator.{table} is missing or no dict"
    if not isinstance(getattr(dispatcher, "_custom_op_handlers", None), dict):
        yield "OpDispatcher._custom_op_handlers is missing or no dict"
