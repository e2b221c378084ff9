"""A program for GPUs on a host that has none: its tensors are fake, and say that they are on CPU.

torch makes fake tensors of any device, but half of what is done with one asks for its device.
So where the program names a GPU, it gets the CPU; what it asks of `torch.cuda` is answered.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_QUIET = (
    "empty_cache",
    "reset_peak_memory_stats",
    "set_device",
    "synchronize",
)
"""Functions of `torch.cuda` that a program calls for what they do."""


def absent() -> bool:
    """Say whether this host has no GPU."""
    return not torch.cuda.is_available()


def replacements(ranks: int) -> dict[str, dict[str, Any]]:
    """List what stands in for which functions of torch, as if there was a GPU for each rank."""
    answers = {
        **{name: lambda *args, **kwargs: None for name in _QUIET},
        "current_device": lambda: 0,
        "device_count": lambda: ranks,
        "get_device_capability": lambda *args: (9, 0),
    }
    # DTensor would keep a GPU's random state in step between ranks.
    no_state = {"is_rng_supported_mesh": lambda mesh: False}
    return {"torch.cuda": answers, "torch.distributed.tensor._dispatch": no_state}


def on_cpu_instead() -> AbstractContextManager[Any]:
    """Put what is meant for a GPU on the CPU, if there is no GPU."""
    return _OnCpu() if absent() else nullcontext()


def without_gpu(value: Any) -> Any:
    """Replace a GPU as it is named in an argument.

    >>> without_gpu("cuda:1"), without_gpu(3)
    ('cpu', 3)
    """
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


class _OnCpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = {name: without_gpu(value) for name, value in (kwargs or {}).items()}
        return func(*map(without_gpu, args), **kwargs)
