"""Counts the collectives that a rank takes part in, and the bytes that it puts into them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dtensor_registry.torch_runtime.collectives import bytes_put_in, collective


class Traffic(TorchDispatchMode):
    """Sees every collective of a block, in eager and in compiled code.

    Attributes:
        collectives: how many, by the name that people use.
        bytes: what this rank put into them, or all ranks that are simulated here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collectives: Counter[str] = Counter()
        self.bytes = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` compile inside the block."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor runs it under this mode, in its parts
        name = collective(func)
        if name is not None:
            self.collectives[name] += 1
            self.bytes += sum(bytes_put_in(func, each) for each in _by_rank(args))
        return func(*args, **(kwargs or {}))


def _by_rank(args: Sequence[Any]) -> list[Sequence[Any]]:
    """List the arguments of each rank that this process simulates, or those of this one."""
    local = [leaf for leaf in tree_leaves(args) if isinstance(leaf, LocalTensor)]
    if not local:
        return [args]
    return [
        [each._local_tensors[rank] for each in local] for rank in sorted(local[0]._local_tensors)
    ]
