"""Tensors without memory: what the program computes is shapes, but for small known values.

Whatever comes from a DTensor op, a collective or another fake tensor is fake. What is small
and follows from plain tensors alone is computed: a mesh, indices, a mask, a learning rate.
So programs that read such values run as they do for real; only what is read of a fake tensor
is made up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch._C._distributed_c10d import FakeWork
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dtensor_registry._torch import execute
from dtensor_registry._torch.arguments import read_arguments
from dtensor_registry._torch.auditing.gpus import on_cpu_instead
from dtensor_registry._torch.execute import Plan, waits_for_shapes

MAX_COMPUTED = 65_536
"""Bytes of results up to which an op on known values is computed."""

_READ = torch.ops.aten._local_scalar_dense.default


def fake_tensors(
    is_inside_op: Callable[[], bool], made_up: Callable[[], None]
) -> AbstractContextManager[Any]:
    """Make tensors of the block fake.

    Args:
        is_inside_op: says whether a DTensor op is running, whose parts are fake.
        made_up: told whenever the program reads a value that had to be made up.
    """
    stack = ExitStack()
    stack.enter_context(on_cpu_instead())
    stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
    stack.enter_context(KnownValues(is_inside_op, made_up))
    return stack


class KnownValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes what is small and known, and leaves the rest to the fake mode below."""

    def __init__(self, is_inside_op: Callable[[], bool], made_up: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_inside_op = is_inside_op
        self._made_up = made_up

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if func.namespace == "c10d":
            # A collective that writes to its first argument; here that stays as it is.
            done = FakeWork().boxed()
            return done if len(func._schema.returns) == 1 else (args[0], done)
        given = _tensors((args, kwargs))
        if func is _READ and isinstance(given[0], FakeTensor):
            self._made_up()
            return made_up_value(given[0].dtype)
        if self._is_inside_op() or not _is_known(func, given):
            return func(*args, **kwargs)
        if not (given and func._schema.is_mutable):  # what writes to known memory needs no more
            try:
                results = _tensors(func(*args, **kwargs))
            except RuntimeError as error:
                if not waits_for_shapes(error):
                    raise
            else:
                size = sum(result.numel() * result.element_size() for result in results)
                if size > MAX_COMPUTED or any(result.device.type != "cpu" for result in results):
                    return func(*args, **kwargs)
        with unset_fake_temporarily():
            return func(*args, **kwargs)


def made_up_value(dtype: torch.dtype) -> bool | int | float:
    """Make up a value that can be divided by, indexes most lists and raises no alarm.

    >>> [made_up_value(dtype) for dtype in (torch.float32, torch.int64, torch.bool)]
    [1.0, 1, False]
    """
    if dtype is torch.bool:
        return False
    return 1.0 if dtype.is_floating_point or dtype.is_complex else 1


def results_of_whole(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make up what an op on DTensors would return if all its tensors were replicated.

    Nothing is moved and nothing written: the shapes are right, and there are no values.
    """
    call = read_arguments(op, args, kwargs, None)
    whole = [
        held.new_empty_strided(spec.shape, spec.stride)
        for held, spec in zip(call.locals, call.specs, strict=True)
    ]
    local_args, local_kwargs = call.replaced(whole)
    return execute._wrap(call, Plan((), None), op(*local_args, **local_kwargs))


def _is_known(func: Any, given: list[torch.Tensor]) -> bool:
    """Say whether an op is on plain tensors of this process only, and no collective."""
    if func.namespace.startswith(("_c10d_functional", "_dtensor")):
        return False
    return all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in given)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
