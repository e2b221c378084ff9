"""Decisions that notice when the rules have changed, in whatever thread they are cached.

torch caches decisions per thread: a C++ cache that only its own thread can clear, and a
Python one. While the host is installed every decision that torch caches is a
`FreshSharding`: it remembers the question, and asks again when the rules have changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor._sharding_prop import LocalLRUCache

from dtensor_registry.torch_runtime import rule_epoch
from dtensor_registry.torch_runtime.amended import AmendedTorch
from dtensor_registry.torch_runtime.decision import Deciding, Decision, Owner, report
from dtensor_registry.torch_runtime.dispatcher import propagator
from dtensor_registry.torch_runtime.moved_views import mark_answer, plain_schema
from dtensor_registry.torch_runtime.row_cache import forget_rows
from dtensor_registry.torch_runtime.shard_order import refuse_own_order

_find_fallback: Callable[[OpSchema], bool] | None = None

_owners: dict[tuple[OpOverload, int], Owner] = {}
"""Who decides an op, by the epoch of rules."""

_MOVING = OpDispatcher._dispatch_get_local_results_slow_path.__code__
"""Code that moves data and runs an op, in a dispatch whose first read has been."""


class FreshSharding(OutputSharding):
    """An answer of torch's propagator that is asked for again once rules have changed.

    The four fields that torch reads are properties; torch's C++ reads them on each hit. One
    dispatch must see one answer, though another thread may change rules meanwhile, so only its
    first read asks again. That is of `needs_redistribute`, by torch's C++; where data moves,
    torch's Python reads it once more. How the last dispatch ended plays no part: it may have
    raised anywhere.

    Attributes:
        decision: what the answer was made from.
    """

    def __init__(
        self, schema: OpSchema, answer: OutputSharding, epoch: int, decision: Decision
    ) -> None:
        self.decision = decision
        self._schema = schema
        self._answer = answer
        self._epoch = epoch

    def _refresh(self) -> None:
        if self._epoch != rule_epoch.current():
            epoch = rule_epoch.current()
            answer = _ask_again(self._schema)
            if isinstance(answer, FreshSharding):
                self.decision, answer = answer.decision, answer._answer
            self._answer = answer
            self._epoch = epoch

    @property
    def needs_redistribute(self) -> Any:  # type: ignore[override]
        """Whether inputs are to be redistributed; asked for again if rules have changed."""
        caller = sys._getframe().f_back  # None in a thread that runs C++ alone
        if caller is None or caller.f_code is not _MOVING:
            self._refresh()
        return self._answer.needs_redistribute

    @property
    def redistribute_schema(self) -> Any:  # type: ignore[override]
        """The call after its inputs were redistributed."""
        return self._answer.redistribute_schema

    @property
    def use_val_from_redistribute_schema(self) -> Any:  # type: ignore[override]
        """Whether arguments that are no tensors come from that schema, too."""
        return self._answer.use_val_from_redistribute_schema

    @property
    def output_spec(self) -> Any:  # type: ignore[override]
        """How the outputs are placed."""
        return self._answer.output_spec


def _ask_again(schema: OpSchema) -> OutputSharding:
    """Ask torch's propagator, and a fallback where it has nothing to say any more."""
    try:
        answer: OutputSharding = propagator().propagate_op_sharding_non_cached(schema)
    except NotImplementedError:
        if _find_fallback is None or not _find_fallback(schema):
            raise
        answer = propagator().propagate_op_sharding_non_cached(schema)
    return answer


def hook_in(
    find_fallback: Callable[[OpSchema], bool],
    find_amended: Callable[[OpOverload], AmendedTorch | None],
    find_owner: Callable[[OpOverload], Owner],
) -> None:
    """Make torch's propagator answer with `FreshSharding`.

    Args:
        find_fallback: gives the op of a call that has no rule a fallback, if there is one.
        find_amended: finds what a plugin amends in torch's own way to run an op.
        find_owner: says who decides an op.
    """
    global _find_fallback
    _find_fallback = find_fallback
    prop = propagator()
    ask = type(prop).propagate_op_sharding_non_cached

    def propagate_op_sharding_non_cached(op_schema: OpSchema) -> OutputSharding:
        # Another thread may change rules while the answer is made: it is of the time before.
        asked = rule_epoch.current()
        owner = _owners.get((op_schema.op, asked))
        if owner is None:
            owner = _owners[op_schema.op, asked] = find_owner(op_schema.op)
        with Deciding(op_schema, owner=owner) as deciding:
            refuse_own_order(op_schema.op, op_schema.args_spec)
            question = plain_schema(op_schema)
            amended = find_amended(op_schema.op)
            if amended is None:
                answer = ask(prop, question)
            else:
                answer = amended.answer(question, lambda schema: ask(prop, schema))
            answer = mark_answer(op_schema, answer)
        decision = deciding.made(answer=answer)
        report(decision)
        return FreshSharding(op_schema, answer, asked, decision)

    prop.propagate_op_sharding_non_cached = propagate_op_sharding_non_cached


def unhook() -> None:
    """Give torch's propagator its own method back."""
    global _find_fallback
    _find_fallback = None
    propagator().__dict__.pop("propagate_op_sharding_non_cached", None)


def renew(in_dispatch: bool) -> None:
    """Make every cached decision of this process be asked for again.

    Args:
        in_dispatch: whether this thread is inside a dispatch. torch's C++ cache must not be
            cleared there, since the dispatch still holds a pointer into it; the epoch alone
            reaches what was cached while the host was installed.
    """
    rule_epoch.advance()
    forget_rows()
    _owners.clear()
    prop = propagator()
    # A new object drops the entries of all threads; cache_clear() would drop only ours.
    prop.propagate_op_sharding = LocalLRUCache(prop.propagate_op_sharding_non_cached)
    if not in_dispatch:
        torch._C._clear_DTensor_sharding_propagator_cache()
