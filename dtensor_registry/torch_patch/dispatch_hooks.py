"""The host in torch's dispatch: before and after the path that makes a decision.

torch's C++ dispatch calls two methods of its dispatcher when it has no cached decision: one
reads the arguments, the other asks the propagator. Two more are called where inputs move, also
when the decision is cached. While the host is installed all are wrapped. A hit in torch's cache
that moves nothing passes none of them.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from typing import Any, Protocol

from torch._ops import OpOverload
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor._op_schema import OpInfo, OpSchema
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from dtensor_registry.errors import MixedTensorsError, MovedArgumentError, NoStrategyError
from dtensor_registry.torch_patch.decompositions import is_decomposed
from dtensor_registry.torch_patch.table_patcher import has_rule
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.decision import Decision, Owner, Specs, report, specs_in
from dtensor_registry.torch_runtime.dispatcher import dispatcher
from dtensor_registry.torch_runtime.execute import Executor, waits_for_shapes
from dtensor_registry.torch_runtime.explain_command import command_for
from dtensor_registry.torch_runtime.moved_views import note_moves, plain_info
from dtensor_registry.torch_runtime.moved_writes import moves_what_is_written, run_decided
from dtensor_registry.torch_runtime.pending_values import warn_pending
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry.torch_runtime.shard_order import (
    has_own_order,
    is_pieces_alone,
    run_in_default_order,
)
from dtensor_registry.torch_runtime.write_through import write_through, written_views

SLOW_PATH = "_propagate_op_sharding_dispatch_slow_path"
UNWRAP = "unwrap_to_op_info"
READ = "_unwrap_to_op_info_impl"
MOVE = "redistribute_local_args"
WRAPPED = (SLOW_PATH, UNWRAP, READ, MOVE)

MAX_CACHED = 4096
"""Decisions per op that torch may cache; further ones are made by the executor, which keeps a
bounded number. torch's own cache has no bound."""


class CacheKeyWarning(UserWarning):
    """An op was called with so many distinct arguments that caching its decisions was ended."""


_DECIDING = frozenset(
    method.__code__
    for method in (
        OpDispatcher._propagate_op_sharding_dispatch_slow_path,
        ShardingPropagator.propagate_op_sharding_non_cached,
    )
)
"""Code that runs while torch makes a decision, in a dispatch or in a refresh of a cached one."""


def in_dispatch() -> bool:
    """Say whether this thread is making a decision, whoever began it and whenever."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code in _DECIDING:
            return True
        frame = frame.f_back
    return False


class Binder(Protocol):
    """What gives rules to ops while they are called."""

    def meet(self, schema: OpSchema | None) -> None:
        """Compare the ranks of a mesh that is used for the first time, if the user wants it."""

    def bind_pending(self, op: OpOverload) -> bool:
        """Give an op a rule that was contributed before the op existed."""

    def bind_early(self, op: OpOverload, specs: Specs) -> bool:
        """Give an op without a rule a fallback that comes before decompositions."""

    def bind_missing(self, op: OpOverload, specs: Specs) -> bool:
        """Give an op for which torch found nothing a fallback."""

    def bind_unshaped(self, op: OpOverload, specs: Specs) -> bool:
        """Let the host run an op whose output shapes torch cannot know."""

    def amended(self, op: OpOverload) -> AmendedTorch | None:
        """Find what a plugin amends in torch's own way to run an op."""

    def owner(self, op: OpOverload) -> Owner:
        """Say who decides an op."""

    def executor(self, op: OpOverload) -> Executor | None:
        """Make what runs an op by the host's rule for it, if it has one."""

    def is_left_to_torch(self, op: OpOverload) -> bool:
        """Say whether the user pinned an op to torch, torch's own error included."""


class DispatchHooks:
    """The wrapped methods."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self._decisions: Counter[OpOverload] = Counter()

    def hook_in(self) -> None:
        """Wrap the methods."""
        torch_path, torch_unwrap = getattr(dispatcher(), SLOW_PATH), getattr(dispatcher(), UNWRAP)
        torch_read, torch_move = getattr(dispatcher(), READ), getattr(dispatcher(), MOVE)

        def slow_path(
            op: OpOverload,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            info: OpInfo,
            *rest: Any,
        ) -> Any:
            return self._decide(torch_path, op, args, kwargs, info, *rest)

        def unwrap(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            try:
                return torch_unwrap(op, args, kwargs)
            except RuntimeError as error:
                if "mixed torch.Tensor and DTensor" in str(error):
                    read_arguments(op, args, kwargs, None)  # raises, naming the argument
                raise

        def read(op: OpOverload, args: tuple[Any, ...], *rest: Any) -> OpInfo:
            return plain_info(torch_read(op, args, *rest), op, args)

        def move(info: OpInfo, wanted: OpSchema, *rest: Any) -> None:
            before = info.local_args
            torch_move(info, wanted, *rest)
            note_moves(info, before, wanted)

        for name, method in zip(WRAPPED, (slow_path, unwrap, read, move), strict=True):
            setattr(dispatcher(), name, method)

    def unhook(self) -> None:
        """Give torch's dispatcher its own methods back."""
        for name in WRAPPED:
            dispatcher().__dict__.pop(name, None)

    def forget(self) -> None:
        """Count decisions anew: rules have changed, and torch's cache is empty."""
        self._decisions.clear()

    def _decide(
        self,
        torch_path: Any,
        op: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        info: OpInfo,
        *rest: Any,
    ) -> Any:
        views = written_views(op, args, kwargs)
        if views:
            return write_through(op, args, kwargs, views)
        binder = self._binder
        binder.meet(info.schema)
        specs = specs_in(info.schema)
        warn_pending(op, specs)
        if any(map(has_own_order, specs)) and not is_pieces_alone(op, specs):
            return run_in_default_order(op, args, kwargs)
        amended = binder.amended(op)
        compute = None if amended is None else amended.computation(info.schema)
        if compute is not None:
            assert info.schema is not None
            report(Decision(info.schema, owner=binder.owner(op)))
            return compute(op, args, kwargs)
        if not (binder.bind_pending(op) or binder.bind_early(op, specs)):
            self._decisions[op] += 1
            if self._decisions[op] > MAX_CACHED:
                executor = self._uncached(op)
                if executor is not None:
                    return executor(op, args, kwargs)
            try:
                answer = torch_path(op, args, kwargs, info, *rest)
            except NotImplementedError as error:
                if not binder.bind_missing(op, specs):
                    self._say_more(op, args, kwargs, error)
                    raise
            except RuntimeError as error:
                if not self._may_execute(op, error):
                    raise
                if not binder.bind_unshaped(op, specs):
                    self._say_more(op, args, kwargs, error)
                    raise
            else:
                lost = moves_what_is_written(op, specs, answer)
                return run_decided(op, args, kwargs, answer) if lost else answer
        # The cache key of this call was made without the schema info that the op has now:
        # start over. torch takes what is no decision as the op's own result.
        return op(*args, **kwargs)

    def _may_execute(self, op: OpOverload, error: RuntimeError) -> bool:
        """Say whether the op may yet run where torch failed to foresee its result.

        torch runs an op on fake tensors before it looks for a rule. Where everything is
        gathered nobody needs to foresee anything, and what is wrong with a call is said by the
        op itself.
        """
        if waits_for_shapes(error):
            return True
        executor = self._binder.executor(op)
        if executor is not None:
            return executor.rule.fallback is not None
        return not has_rule(op) and (facts(op).beyond_torch or not is_decomposed(op))

    def _uncached(self, op: OpOverload) -> Executor | None:
        executor = self._binder.executor(op)
        if executor is not None and self._decisions[op] == MAX_CACHED + 1:
            warnings.warn(
                f"{op} was decided {MAX_CACHED} times, each time for other arguments; from now on"
                f" the host runs it itself, without torch's cache.\n  rule of"
                f" {executor.rule.origin}\n  If an argument changes in every call and no row"
                f" depends on it, leave it out of the key:  schema_info=SchemaInfo(...)",
                CacheKeyWarning,
                stacklevel=2,
            )
        return executor

    def _say_more(
        self,
        op: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        error: Exception,
    ) -> None:
        """Raise an error that says more of an op without a rule; any other stays as it is."""
        if has_rule(op) or isinstance(error, (NoStrategyError, MixedTensorsError)):
            return
        if self._binder.is_left_to_torch(op):
            return
        if isinstance(error.__cause__, MovedArgumentError):
            raise error.__cause__
        unshaped = waits_for_shapes(error)
        call = read_arguments(op, args, kwargs, None)
        inputs = ", ".join(
            f"{name}: {tuple(spec.shape)}@({', '.join(map(str, spec.placements))})"
            for (name, _), spec in zip(call.declared, call.specs, strict=True)
        )
        raise NoStrategyError(
            str(op), inputs, str(tuple(call.mesh.shape)), unshaped, command_for(call.schema)
        ) from error
