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

TESTED = ("2.13.0", "2.14.1", "2.15.0")
"""The versions of torch that the suite has run on, oldest first; see docs/versions.md."""


@dataclass(frozen=True, slots=True)
class PrivateName:
    """One private name and what the host needs of it.

    Attributes:
        module: where it is imported from.
        path: attribute path inside the module.
        parameters: names that its signature must start with; None: it need only be there.
        attributes: what it, or an instance if it is a class, must have.
        since: the first torch that has it so, of those that the suite has run on.
        until: the first that has not; None: the last one has it.
    """

    module: str
    path: str
    parameters: tuple[str, ...] | None = None
    attributes: tuple[str, ...] = ()
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

    def places(self) -> list[tuple[Any, str]]:
        """List where the name and its attributes are in the running torch: object, attribute.

        Raises:
            ImportError: if there is no such module.
            AttributeError: if there is no such name in it.
        """
        owner: Any = importlib.import_module(self.module)
        *path, last = self.path.split(".")
        for part in path:
            owner = getattr(owner, part)
        value = getattr(owner, last)
        return [(owner, last), *((value, name) for name in self.attributes)]

    def problem(self) -> str | None:
        """Say what is wrong with this name in the running torch, or None."""
        if not self.belongs_to(torch.__version__):
            return None
        try:
            (owner, last), *attributes = self.places()
        except (ImportError, AttributeError):
            return f"{self} is missing"
        missing = [name for value, name in attributes if not _has(value, name)]
        if missing:
            return f"{self} has no {', '.join(missing)}"
        if self.parameters is None:
            return None
        found = tuple(inspect.signature(getattr(owner, last)).parameters)
        if found[: len(self.parameters)] == self.parameters:
            return None
        return f"{self} takes ({', '.join(found)}), expected ({', '.join(self.parameters)}, ...)"


def _has(owner: Any, name: str) -> bool:
    """Say whether an object has an attribute, or a class gives it to its instances."""
    if hasattr(owner, name) or name in getattr(owner, "__annotations__", ()):
        return True
    code = getattr(getattr(owner, "__init__", None), "__code__", None)
    return code is not None and name in code.co_names


_TENSOR = "torch.distributed.tensor"

SURFACE = (
    PrivateName("torch._subclasses.fake_tensor", "DataDependentOutputException"),
    PrivateName("torch._subclasses.fake_tensor", "DynamicOutputShapeException"),
    PrivateName("torch._subclasses.fake_tensor", "UnsupportedOperatorException"),
    PrivateName("torch._subclasses.fake_tensor", "unset_fake_temporarily"),
    PrivateName("torch.fx.experimental.proxy_tensor", "disable_proxy_modes_tracing"),
    PrivateName("torch._C", "_dispatch_get_all_op_names"),
    PrivateName("torch._C", "_clear_DTensor_sharding_propagator_cache"),
    PrivateName("torch._library.custom_ops", "CustomOpDef", attributes=("_init_fn",)),
    PrivateName("torch._library.custom_ops", "OPDEFS"),
    PrivateName("torch._C", "DispatchKey"),
    PrivateName(
        "torch._C", "FunctionSchema", attributes=("arguments", "name", "overload_name", "returns")
    ),
    PrivateName(
        "torch._C",
        "Argument",
        attributes=(
            "alias_info",
            "default_value",
            "has_default_value",
            "kwarg_only",
            "name",
            "type",
        ),
    ),
    PrivateName("torch._C", "_AliasInfo", attributes=("before_set", "is_write")),
    PrivateName("torch._ops", "OpOverload"),
    PrivateName("torch", "ops.aten.add_", attributes=("overloads",)),
    PrivateName(
        "torch",
        "ops.aten.add_.Tensor",
        attributes=("_schema", "name", "namespace", "overloadpacket", "tags"),
    ),
    PrivateName("torch.utils._python_dispatch", "TorchDispatchMode"),
    PrivateName("torch.utils._pytree", "tree_any", ("pred", "tree")),
    PrivateName("torch.utils._pytree", "tree_leaves", ("tree", "is_leaf")),
    PrivateName("torch.utils._pytree", "tree_map", ("func", "tree")),
    PrivateName("torch.compiler", "config", attributes=("_config", "cache_key_tag")),
    PrivateName(
        "torch.utils._config_module",
        "_ConfigEntry",
        attributes=("default", "env_value_default", "user_override"),
    ),
    PrivateName("torch.distributed._local_tensor", "LocalTensor", attributes=("_local_tensors",)),
    PrivateName("torch.distributed.distributed_c10d", "_get_default_store", ()),
    PrivateName("torch.distributed.device_mesh", "DeviceMesh._is_current_rank_part_of_mesh"),
    PrivateName(
        f"{_TENSOR}._op_schema",
        "OpInfo",
        attributes=("args_tree_spec", "flat_args_schema", "local_args", "schema"),
    ),
    PrivateName(f"{_TENSOR}._op_schema", "StrategyType"),
    PrivateName(f"{_TENSOR}", "DTensor", attributes=("_local_tensor", "_spec")),
    PrivateName(
        f"{_TENSOR}",
        "DTensor._op_dispatcher",
        attributes=("_custom_op_handlers", "_random_ops", "sharding_propagator"),
    ),
    PrivateName(
        f"{_TENSOR}",
        "DTensor._op_dispatcher.sharding_propagator",
        attributes=("decomp_strategy", "op_to_shape_and_stride_idx", "propagate_op_sharding"),
    ),
    PrivateName(f"{_TENSOR}._collective_utils", "MeshTopoInfo.build_from_mesh", ("mesh",)),
    PrivateName(
        f"{_TENSOR}._collective_utils",
        "MeshTopoInfo",
        attributes=("mesh_dim_bandwidth", "mesh_dim_devices", "mesh_dim_latency"),
    ),
    PrivateName(
        f"{_TENSOR}._collective_utils", "redistribute_cost", ("current_spec", "target_spec")
    ),
    PrivateName(
        f"{_TENSOR}._sharding_prop",
        "ShardingPropagator.register_op_strategy",
        ("self", "op_overload", "strategy_func", "schema_info"),
    ),
    PrivateName(
        f"{_TENSOR}._decompositions",
        "DecompShardingStrategy._get_candidate_placements",
        ("op_schema",),
    ),
    PrivateName(f"{_TENSOR}._decompositions", "DecompShardingStrategy.has_decomp", ("op",)),
    PrivateName(
        f"{_TENSOR}._decompositions",
        "DecompShardingStrategy.propagate_strategy",
        ("self", "op_schema"),
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
    PrivateName(
        f"{_TENSOR}._dispatch",
        "OpDispatcher._unwrap_to_op_info_impl",
        ("self", "op_call", "args", "kwargs", "create_schema"),
    ),
    PrivateName(
        f"{_TENSOR}._dispatch",
        "OpDispatcher.redistribute_local_args",
        ("op_info", "suggested_input_schema"),
    ),
    PrivateName(
        f"{_TENSOR}._dtensor_spec",
        "DTensorSpec",
        ("mesh", "placements", "tensor_meta"),
        attributes=(
            "_convert_shard_order_to_StridedShard",
            "format_shard_order_str",
            "is_default_device_order",
            "is_replicated",
            "shape",
            "shard_order",
            "stride",
        ),
    ),
    PrivateName(f"{_TENSOR}._dtensor_spec", "DTensorSpec._check_equals", ("self", "other")),
    PrivateName(f"{_TENSOR}._dtensor_spec", "TensorMeta", ("shape", "stride", "dtype")),
    PrivateName(
        f"{_TENSOR}._op_schema",
        "OpSchema",
        ("op", "args_schema", "kwargs_schema"),
        attributes=(
            "_recompute_comparison_key",
            "args_meta",
            "args_spec",
            "kwargs_meta",
            "schema_info",
        ),
    ),
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
    PrivateName(
        f"{_TENSOR}._ops.single_dim_strategy",
        "_SingleDimStrategyInfo",
        ("func",),
        attributes=("allow_unbacked_sharding", "allow_uneven_sharding"),
    ),
    PrivateName(
        f"{_TENSOR}._ops.single_dim_strategy",
        "_SingleDimStrategyInfo",
        attributes=("full_mesh_strategy_filter",),
        since="2.14",
    ),
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
    PrivateName(f"{_TENSOR}._redistribute", "_FORCE_MIN_COST_REDISTRIBUTION_PLAN"),
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
    PrivateName(f"{_TENSOR}.placement_types", "_MaskPartial"),
    PrivateName(f"{_TENSOR}.placement_types", "_StridedShard", ("dim", "split_factor")),
    PrivateName("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack"),
)
"""Every private name that deciding, executing and installing use."""

TOOLS = (
    PrivateName("torch._C", "_current_autograd_node"),
    PrivateName("torch._C", "_dispatch_has_kernel_for_dispatch_key"),
    PrivateName("torch._C", "FunctionSchema", attributes=("is_mutable",)),
    PrivateName("torch._C", "Argument", attributes=("is_out",)),
    PrivateName("torch._C._autograd", "_get_sequence_nr"),
    PrivateName("torch._C._distributed_c10d", "FakeWork"),
    PrivateName("torch._C._distributed_c10d", "HashStore"),
    PrivateName("torch._C._distributed_c10d", "ProcessGroup"),
    PrivateName("torch._subclasses.fake_tensor", "FakeTensor"),
    PrivateName("torch._subclasses.fake_tensor", "FakeTensorMode"),
    PrivateName("torch.autograd.graph", "Node._sequence_nr"),
    PrivateName("torch.distributed._local_tensor", "LocalTensorMode", attributes=("disable",)),
    PrivateName("torch.distributed._local_tensor", "local_tensor_mode"),
    PrivateName(f"{_TENSOR}._decompositions", "DecompShardingStrategy._get_fake_mesh"),
    PrivateName(
        f"{_TENSOR}._decompositions", "DecompShardingStrategy._propagate_through_decomp", ("self",)
    ),
    PrivateName("torch.distributed.distributed_c10d", "_new_process_group_helper"),
    PrivateName(f"{_TENSOR}._collective_utils", "local_tensor_mode"),
    PrivateName(f"{_TENSOR}._random", "_rng_tracker"),
    PrivateName(f"{_TENSOR}._redistribute", "_gen_transform_infos", ("src_spec", "dst_spec")),
    PrivateName(f"{_TENSOR}._utils", "_compute_local_shape_and_global_offset"),
    PrivateName("torch.testing._internal.distributed.fake_pg", "FakeStore"),
    PrivateName("torch.utils._python_dispatch", "_disable_current_modes"),
    PrivateName("torch.utils._pytree", "tree_map_only"),
)
"""Private names that only `explain`, `audit` and `verify` use: jobs run without them."""

LATER = (PrivateName("torch._dynamo.convert_frame", "FRAME_COUNTER"),)
"""Names in modules that torch imports when they are used; the suite checks them, no job does."""

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
