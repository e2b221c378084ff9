"""Tensors without memory: what the program computes is shapes, but for small known values.

Whatever comes from a DTensor op, a collective or another fake tensor is fake. What is small
and follows from plain tensors alone is computed: a mesh, indices, a mask, a learning rate.
So programs that read such values run as they do for real; only what is read of a fake tensor
is made up. A plain tensor that was written to from a fake one counts as fake from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch._C._distributed_c10d import FakeWork, ProcessGroup
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dtensor_registry.torch_fake.gpus import on_cpu_instead
from dtensor_registry.torch_runtime import execute
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.execute import Plan, waits_for_shapes

MAX_COMPUTED = 65_536
"""Bytes of results up to which an op on known values is computed."""

_READ = torch.ops.aten._local_scalar_dense.default

_READ_AT_ONCE = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
"""Functions that look into the memory of a plain tensor without running an op."""

_UNTOUCHED = frozenset({"c10d::barrier", "c10d::monitored_barrier_", "c10d::send"})
"""Collectives that do not write to their first argument."""


def fake_tensors(
    is_inside_op: Callable[[], bool], made_up: Callable[[], None]
) -> AbstractContextManager[Any]:
    """Make tensors of the block fake.

    Args:
        is_inside_op: says whether a DTensor op is running, whose parts are fake.
        made_up: told whenever the program reads a value that had to be made up.
    """
    overwritten = _Overwritten()
    stack = ExitStack()
    stack.enter_context(on_cpu_instead())
    stack.enter_context(_ReadsAtOnce(overwritten))
    stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
    stack.enter_context(KnownValues(is_inside_op, made_up, overwritten))
    return stack


class _Overwritten:
    """The memory of plain tensors that should hold what is not known, and holds what was before."""

    def __init__(self) -> None:
        self._storages: set[StorageWeakRef] = set()

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return bool(self._storages) and _storage_of(tensor) in self._storages

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        written = {_storage_of(tensor) for tensor in tensors if _is_plain(tensor)}
        if not written <= self._storages:
            alive = {ref for ref in self._storages if not ref.expired()}  # type: ignore[no-untyped-call]
            self._storages = alive | written


class _ReadsAtOnce(TorchFunctionMode):
    """Lets overwritten tensors be read as fake ones are."""

    def __init__(self, overwritten: _Overwritten) -> None:
        super().__init__()
        self._overwritten = overwritten

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _READ_AT_ONCE and _is_plain(args[0]) and args[0] in self._overwritten:
            fake = args[0].detach()  # as what any op on an overwritten tensor returns
            return getattr(fake, func.__name__)(*args[1:], **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class KnownValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes what is small and known, and leaves the rest to the fake mode below."""

    def __init__(
        self,
        is_inside_op: Callable[[], bool],
        made_up: Callable[[], None],
        overwritten: _Overwritten,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_inside_op = is_inside_op
        self._made_up = made_up
        self._overwritten = overwritten

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if func.namespace == "c10d":
            # A collective that writes to its first argument; here that stays as it is.
            if not self._keeps(func, args):
                self._overwritten.add(_tensors(args[0]))
            done = FakeWork().boxed()
            return done if len(func._schema.returns) == 1 else (args[0], done)
        given = _tensors((args, kwargs))
        if func is _READ and not self._are_known(given):
            self._made_up()
            return made_up_value(given[0].dtype)
        if self._is_inside_op() or _is_collective(func) or not self._are_known(given):
            if func._schema.is_mutable:
                self._overwritten.add(_tensors(_written(func, args, kwargs)))
            return func(*args, **kwargs)
        if not (given and func._schema.is_mutable):  # what writes to known memory needs no more
            try:
                faked = func(*args, **kwargs)
            except RuntimeError as error:
                if not waits_for_shapes(error):
                    raise
            else:
                results = _tensors(faked)
                size = sum(result.numel() * result.element_size() for result in results)
                if size > MAX_COMPUTED or any(result.device.type != "cpu" for result in results):
                    return faked
        with unset_fake_temporarily():
            return func(*args, **kwargs)

    def _are_known(self, given: list[torch.Tensor]) -> bool:
        """Say whether all are plain tensors of this process with the values they should have."""
        return all(_is_plain(t) and t not in self._overwritten for t in given)

    def _keeps(self, func: Any, args: Sequence[Any]) -> bool:
        """Say whether a collective leaves what it is given known: what this rank sends it has."""
        if func._schema.name in _UNTOUCHED:
            return True
        if func._schema.name != "c10d::broadcast_":
            return False
        _, group, root, *_ = args
        return bool(root == ProcessGroup.unbox(group).rank()) and self._are_known(_tensors(args[0]))


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


def _storage_of(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _is_collective(func: Any) -> bool:
    return bool(func.namespace.startswith(("_c10d_functional", "_dtensor")))


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """List the arguments that an op writes to."""
    arguments = [a for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return [given.get(argument.name) for argument in arguments]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
