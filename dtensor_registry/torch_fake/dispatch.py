"""Where a call is tried: a mesh of one rank, tensors without data, a thread of its own."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, _collective_utils, _random
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from dtensor_registry.errors import InstallError
from dtensor_registry.mesh_sizes import MeshSizes
from dtensor_registry.torch_patch.override_stack import LOAN, LOOKING

T = TypeVar("T")


@contextmanager
def made_up_mesh(asked: MeshSizes) -> Iterator[DeviceMesh]:
    """Make a mesh of the asked size of which this process is rank 0 and which has no others.

    Its collectives move nothing: only what has no data may be sent through them.

    Raises:
        InstallError: if this process is part of a process group already.
    """
    if dist.is_initialized():
        raise InstallError(
            f"a mesh {asked} would be made up for the explanation, but this process is in a"
            " process group.\n"
            "  Give the mesh that you have:  explain(op, ..., mesh=mesh) , or DTensors on it, or"
            " ask in another process:  dtensor-registry explain"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of its fake process group
        dist.init_process_group("fake", rank=0, world_size=asked.ranks)
    try:
        yield init_device_mesh("cpu", asked.shape, mesh_dim_names=asked.names)
    finally:
        dist.destroy_process_group()


def look(work: Callable[[], T]) -> T:
    """Dispatch calls to look at what comes of them, and change nothing for anybody else.

    torch caches decisions per thread, so this happens in a thread of its own, whose caches end
    with it. Rules that were bound to an op because it was called are put back.

    Raises:
        InstallError: inside a dispatch of this thread.
    """
    LOAN.refuse_in_dispatch("explain a call")
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def looking() -> T:
        LOOKING.set(True)
        # torch says there what a flattened mesh could save.
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(grad),
            quiet("torch.distributed.tensor._redistribute"),
            _all_to_all(),
        ):
            return work()

    before = LOAN.entries()
    tracker = _random._rng_tracker  # it belongs to a mesh
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(copy_context().run, looking).result()
    finally:
        _random._rng_tracker = tracker
        LOAN.put_back(before)


@contextmanager
def _all_to_all() -> Iterator[None]:
    """Let this thread use the all-to-all that torch prices, and every device but a CPU has.

    On a CPU torch gathers and cuts instead, unless ranks are simulated, as they are here.
    """
    thread, torchs = threading.get_ident(), _collective_utils.local_tensor_mode
    simulated = object()

    def mode() -> Any:
        return simulated if threading.get_ident() == thread else torchs()

    with mock.patch.object(_collective_utils, "local_tensor_mode", mode):
        yield


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Keep torch from reporting on stderr what belongs in an explanation, or has no bearing."""
    logs = [logging.getLogger(name) for name in loggers]
    disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, before in zip(logs, disabled, strict=True):
            log.disabled = before


def without_data(spec: DTensorSpec, mode: FakeTensorMode, device: Any = "cpu") -> DTensor:
    """Make the DTensor of a spec, with the local tensor that rank 0 would have, but no data."""
    meta: Any = spec.tensor_meta
    shape, _ = piece_of(spec, (0,) * spec.mesh.ndim)
    outermost_first = sorted(range(len(shape)), key=lambda at: -meta.stride[at])
    with mode:
        local = torch.empty_permuted(shape, outermost_first, dtype=meta.dtype, device=device)
    return DTensor(local, spec, requires_grad=False)  # type: ignore[no-untyped-call]


def piece_of(
    spec: DTensorSpec, coordinate: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give shape and offset of what a rank holds of a tensor."""
    shape, offset = _compute_local_shape_and_global_offset(
        spec.shape, tuple(spec.mesh.shape), list(coordinate), spec.placements
    )
    return tuple(map(int, shape)), tuple(map(int, offset))
