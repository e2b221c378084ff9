"""A world of ranks that are not there: a program runs as rank 0 of many and sends nothing.

Whatever backend the program names, its process groups are torch's fake one. Environment
variables are as torchrun sets them. What the program has compiled runs as it is written. All is
as before when the block has ended.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # first, since it lists functions of torch that are replaced here
import torch.distributed as dist
import torch.multiprocessing
import torch.testing._internal.distributed.fake_pg  # registers the fake backend
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d
from torch.distributed.tensor import _random

from dtensor_registry.errors import InstallError
from dtensor_registry.torch_fake import gpus
from dtensor_registry.torch_patch import cache_invalidation

MASTER_PORT = "29500"
"""torchrun's own default; nobody listens there."""


def torchrun_variables(ranks: int) -> dict[str, str]:
    """List what torchrun sets for the first of some ranks on one host.

    >>> torchrun_variables(4)["WORLD_SIZE"]
    '4'
    """
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": MASTER_PORT,
    }


@contextmanager
def fake_world(ranks: int) -> Iterator[None]:
    """Run a block as rank 0 of ranks that are not there.

    Raises:
        InstallError: if this process is part of a process group already.
    """
    if dist.is_initialized():
        raise InstallError(
            "an audit of a program makes a process group of its own, and this process has one.\n"
            "  Call torch.distributed.destroy_process_group() first, or use another process."
        )
    with ExitStack() as undo:
        undo.enter_context(_kept_globals())
        undo.enter_context(torch.compiler.set_stance("force_eager"))
        undo.enter_context(mock.patch.dict(os.environ, torchrun_variables(ranks)))
        for target, replacements in _replacements(ranks).items():
            module = importlib.import_module(target)
            for name, value in replacements.items():
                undo.enter_context(mock.patch.object(module, name, value))
        undo.callback(_end_groups)
        yield


def _end_groups() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    # Cached decisions hold meshes whose groups are gone.
    cache_invalidation.renew(in_dispatch=False)


@contextmanager
def _kept_globals() -> Iterator[None]:
    """Put back what a program may change in its process, and torch on its behalf."""
    hook, tracker, dtype = sys.excepthook, _random._rng_tracker, torch.get_default_dtype()
    _random._rng_tracker = None  # it belongs to a mesh
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Attempted to get default timeout for nccl backend")
            yield
    finally:
        sys.excepthook, _random._rng_tracker = hook, tracker
        torch.set_default_dtype(dtype)


def _replacements(ranks: int) -> Mapping[str, Mapping[str, Any]]:
    """List what stands in for which functions of torch, by module."""
    everywhere = {
        "init_process_group": _init_process_group(distributed_c10d.init_process_group),
        "all_gather_object": _all_gather_object,
        "broadcast_object_list": _keep_objects,
        "gather_object": _gather_object,
        "scatter_object_list": _scatter_object_list,
    }
    stores = dict.fromkeys(("TCPStore", "FileStore"), _store)
    inner = {
        "_new_process_group_helper": _fake_group(distributed_c10d._new_process_group_helper),
        "rendezvous": _rendezvous(ranks),
    }
    return {
        **(gpus.replacements(ranks) if gpus.absent() else {}),
        "torch.distributed": {**everywhere, **stores},
        "torch.distributed.distributed_c10d": {**everywhere, **inner},
        # Found by either name; `spawn` itself calls this one.
        "torch.multiprocessing": {"start_processes": _start_first},
        "torch.multiprocessing.spawn": {"start_processes": _start_first},
    }


def _init_process_group(torch_init: Callable[..., None]) -> Callable[..., None]:
    def init_process_group(*args: Any, device_id: Any = None, **kwargs: Any) -> None:
        """Leave the device out: this host may not have it."""
        torch_init(*args, **kwargs)

    return init_process_group


def _fake_group(torch_helper: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(torch_helper)

    def new_process_group(*args: Any, **kwargs: Any) -> Any:
        """Make a fake group instead; what else this version of torch says of it stays."""
        call = signature.bind(*args, **kwargs)
        call.arguments["backend"] = dist.Backend(dist.Backend.FAKE)
        for of_another_backend in ("backend_options", "device_id"):
            call.arguments.pop(of_another_backend, None)
        return torch_helper(*call.args, **call.kwargs)

    return new_process_group


def _rendezvous(ranks: int) -> Callable[..., Iterator[tuple[Any, int, int]]]:
    def rendezvous(
        url: str, rank: int = -1, world_size: int = -1, **kwargs: Any
    ) -> Iterator[tuple[Any, int, int]]:
        """Meet nobody; -1 means what the environment says, as for torch."""
        yield (
            HashStore(),
            0 if rank == -1 else rank,
            ranks if world_size == -1 else world_size,
        )

    return rendezvous


def _store(*args: Any, **kwargs: Any) -> Any:
    """Make a store without a network or a file, whatever was asked for."""
    return HashStore()


def _start_first(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    *args_of_processes: Any,
    **kwargs: Any,
) -> None:
    """Run in this process what would be rank 0 of new ones."""
    if not join:
        raise InstallError(
            "the program starts processes by itself and does not wait for them; an audit sees one"
            " process.\n  Audit what one rank runs:  dtensor-registry audit module:function"
        )
    fn(0, *args)


def _all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every rank is like this one."""
    object_list[:] = [obj] * len(object_list)


def _gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def _keep_objects(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """What rank 0 would send it has."""


def _scatter_object_list(
    output: list[Any], given: list[Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    if given:
        output[0] = given[0]
