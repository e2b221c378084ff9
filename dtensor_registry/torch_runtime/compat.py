"""The private names of torch that the host stands on, as data, checked before first use."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
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


_WRITTEN = re.compile(
    r"(?P<path>[\w.]+)(?:\((?P<parameters>.*)\))?"
    r"(?:: (?P<attributes>.*?))?(?: since (?P<since>.*))?"
)


def read_names(written: Mapping[str, Sequence[str]]) -> tuple[PrivateName, ...]:
    """Read names by module, each with what is needed of it.

    >>> [name] = read_names({"torch._C": ["Argument(self, type): name is_out since 2.14"]})
    >>> name.path, name.parameters, name.attributes, name.since
    ('Argument', ('self', 'type'), ('name', 'is_out'), '2.14')
    """
    found = []
    for module, texts in written.items():
        for text in texts:
            match = _WRITTEN.fullmatch(text)
            assert match is not None, f"{text!r} is no name"
            listed = match["parameters"]
            parameters = None if listed is None else tuple(listed.split(", ") if listed else ())
            attributes = tuple((match["attributes"] or "").split())
            since = match["since"] or TESTED[0]
            found.append(PrivateName(module, match["path"], parameters, attributes, since))
    return tuple(found)


SURFACE = read_names(
    {
        "torch": [
            "ops.aten.add_: overloads",
            "ops.aten.add_.Tensor: _schema name namespace overloadpacket tags",
        ],
        "torch._C": [
            "_dispatch_get_all_op_names",
            "_dispatch_has_kernel_for_dispatch_key",
            "_clear_DTensor_sharding_propagator_cache",
            "DispatchKey",
            "FunctionSchema: arguments name overload_name returns",
            "Argument: alias_info default_value has_default_value kwarg_only name type",
            "_AliasInfo: before_set is_write",
        ],
        "torch._library.custom_ops": ["CustomOpDef: _init_fn", "OPDEFS"],
        "torch._ops": ["OpOverload"],
        "torch._subclasses.fake_tensor": [
            "DataDependentOutputException",
            "DynamicOutputShapeException",
            "UnsupportedOperatorException",
            "unset_fake_temporarily",
        ],
        "torch.compiler": ["config: _config cache_key_tag"],
        "torch.distributed._local_tensor": ["LocalTensor: _local_tensors"],
        "torch.distributed.device_mesh": ["DeviceMesh._is_current_rank_part_of_mesh"],
        "torch.distributed.distributed_c10d": ["_get_default_store()"],
        "torch.distributed.tensor": [
            "DTensor: _local_tensor _spec",
            "DTensor._op_dispatcher: _custom_op_handlers _random_ops sharding_propagator",
            "DTensor._op_dispatcher.sharding_propagator: decomp_strategy "
            "op_to_shape_and_stride_idx propagate_op_sharding",
        ],
        "torch.distributed.tensor._collective_utils": [
            "MeshTopoInfo.build_from_mesh(mesh)",
            "MeshTopoInfo: mesh_dim_bandwidth mesh_dim_devices mesh_dim_latency",
            "redistribute_cost(current_spec, target_spec)",
        ],
        "torch.distributed.tensor._decompositions": [
            "DecompShardingStrategy._get_candidate_placements(op_schema)",
            "DecompShardingStrategy.has_decomp(op)",
            "DecompShardingStrategy.propagate_strategy(self, op_schema)",
            "PlacementTrackingMode",
        ],
        "torch.distributed.tensor._dispatch": [
            "OpDispatcher._propagate_op_sharding_dispatch_slow_path(self, op_call, args, "
            "kwargs, op_info, try_cache)",
            "OpDispatcher._dispatch_get_local_results_slow_path(self, op_call, args, op_info)",
            "OpDispatcher.unwrap_to_op_info(self, op_call, args)",
            "OpDispatcher._unwrap_to_op_info_impl(self, op_call, args, kwargs, create_schema)",
            "OpDispatcher.redistribute_local_args(op_info, suggested_input_schema)",
            "OpDispatcher._try_replicate_spec_for_scalar_tensor(self)",
            "OpDispatcher.wrap(res, spec)",
        ],
        "torch.distributed.tensor._dtensor_spec": [
            "DTensorSpec(mesh, placements, tensor_meta)",
            "DTensorSpec: _convert_shard_order_to_StridedShard format_shard_order_str "
            "is_default_device_order is_replicated shape shard_order stride",
            "DTensorSpec._check_equals(self, other)",
            "TensorMeta(shape, stride, dtype)",
        ],
        "torch.distributed.tensor._op_schema": [
            "OpInfo: args_tree_spec flat_args_schema local_args schema",
            "StrategyType",
            "OpSchema(op, args_schema, kwargs_schema)",
            "OpSchema: _recompute_comparison_key args_meta args_spec kwargs_meta schema_info",
            "OpSpec(output_specs, input_specs, redistribute_cost)",
            "OpStrategy(strategies)",
            "OutputSharding(output_spec, redistribute_schema, needs_redistribute, "
            "use_val_from_redistribute_schema)",
            "RuntimeSchemaInfo(static_argnum, static_kwargkey, needs_pytree)",
            "TupleStrategy(children)",
        ],
        "torch.distributed.tensor._ops.single_dim_strategy": [
            "_ShardingPlaceholder(dim)",
            "_SingleDimStrategyInfo(func): allow_unbacked_sharding allow_uneven_sharding",
            "_SingleDimStrategyInfo: full_mesh_strategy_filter since 2.14",
            "_resolve_foreach_elementwise_overload(foreach_op)",
        ],
        "torch.distributed.tensor._redistribute": [
            "_FORCE_MIN_COST_REDISTRIBUTION_PLAN",
            "redistribute_local_tensor(local_tensor, current_spec, target_spec)",
        ],
        "torch.distributed.tensor._sharding_prop": [
            "ShardingPropagator.register_op_strategy(self, op_overload, strategy_func, "
            "schema_info)",
            "_expand_single_dim_strategy_to_mesh(mesh, op_schema, strategy_info, "
            "output_tensor_meta)",
            "_select_min_cost_strategy(strategy)",
            "ShardingPropagator._propagate_tensor_meta_non_cached(self)",
            "ShardingPropagator._wrap_with_op_strategy(self)",
            "LocalLRUCache(user_function)",
            "ShardingPropagator.propagate_op_sharding_non_cached(self, op_schema)",
        ],
        "torch.distributed.tensor.placement_types": [
            "Shard._to_partial_tensor since 2.14.1",
            "_MaskPartial",
            "_StridedShard(dim, split_factor)",
        ],
        "torch.fx.experimental.proxy_tensor": ["disable_proxy_modes_tracing"],
        "torch.utils._config_module": ["_ConfigEntry: default env_value_default user_override"],
        "torch.utils._python_dispatch": ["TorchDispatchMode", "_get_current_dispatch_mode_stack"],
        "torch.utils._pytree": [
            "tree_any(pred, tree)",
            "tree_leaves(tree, is_leaf)",
            "tree_map(func, tree)",
        ],
    }
)
"""Every private name that deciding, executing and installing use."""

TOOLS = read_names(
    {
        "torch._C": [
            "_current_autograd_node",
            "FunctionSchema: is_mutable",
        ],
        "torch._C._autograd": ["_get_sequence_nr"],
        "torch._C._distributed_c10d": ["FakeWork", "HashStore", "ProcessGroup"],
        "torch._subclasses.fake_tensor": ["FakeTensor", "FakeTensorMode"],
        "torch.autograd.graph": ["Node._sequence_nr"],
        "torch.distributed._local_tensor": ["local_tensor_mode"],
        "torch.distributed.distributed_c10d": ["_new_process_group_helper"],
        "torch.distributed.tensor._collective_utils": ["local_tensor_mode"],
        "torch.distributed.tensor._decompositions": [
            "DecompShardingStrategy._get_fake_mesh",
            "DecompShardingStrategy._propagate_through_decomp(self)",
        ],
        "torch.distributed.tensor._random": ["_rng_tracker"],
        "torch.distributed.tensor._redistribute": ["_gen_transform_infos(src_spec, dst_spec)"],
        "torch.distributed.tensor._utils": ["_compute_local_shape_and_global_offset"],
        "torch.utils._pytree": ["tree_map_only"],
    }
)
"""Private names that only `explain` and `audit` use: jobs run without them."""

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
    """Say what `explain` or `audit` would miss in the running torch."""
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
