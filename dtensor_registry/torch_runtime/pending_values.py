"""Numbers that a program reads of a tensor whose reduction is pending.

`x.item()`, `float(x)` and `if x` give what this rank holds. torch says nothing of it, and neither
can the host reduce: a program may read a loss on one rank alone, which would then wait for ever.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from dtensor_registry.torch_runtime.source_lines import stacklevel

_READ = torch.ops.aten._local_scalar_dense.default


class PendingValueWarning(UserWarning):
    """A number was read of a tensor whose reduction is pending: it is this rank's alone."""


def warn_pending(op: OpOverload, specs: Sequence[DTensorSpec]) -> None:
    """Say that a program reads what is not yet reduced; once for each place, as torch caches."""
    if op is not _READ or not specs:
        return
    spec = specs[0]
    pending = [
        placement
        for placement, ranks in zip(spec.placements, spec.mesh.shape, strict=True)
        if placement.is_partial() and ranks > 1
    ]
    if pending:
        shown = ", ".join(map(str, spec.placements))
        warnings.warn(
            f"{op}: a number is read (x.item(), float(x), if x: ...) of a tensor placed ({shown})"
            f" on a mesh {tuple(spec.mesh.shape)}. Its reduction is pending, so each rank reads"
            " what it holds itself.\n  Write, on all ranks:  x.full_tensor().item()",
            PendingValueWarning,
            stacklevel=stacklevel(),
        )
