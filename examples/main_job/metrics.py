"""What the trained model predicts, counted: a metric as a program computes it after training.

Like the model, it knows nothing of DTensor. Its ops are everyday ones for which torch has no
sharding rule: `searchsorted` and `bincount`, which the plugin `structure` has rules for, and
`unique`, for which no row can be right, so that a fallback runs it on the whole tensor. `gather`
and `mse_loss` are ops that torch runs wrong on some placements; the plugin `corrections` has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional

from main_job.model import Transformer

EDGES = (0.0, 1.0, 2.0, 3.0, 4.0)
"""Between the classes in which scores are counted."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a model predicts for a batch.

    Attributes:
        distinct: how many different bytes it predicts.
        scores: how many predictions have a score up to each of `EDGES`, and above all.
        gap: mean square of how much the score of the right byte is below the best.
    """

    distinct: int
    scores: tuple[int, ...]
    gap: float

    def __str__(self) -> str:
        counts = ", ".join(map(str, self.scores))
        return f"{self.distinct} different bytes; by score: {counts}; gap {self.gap:.4f}"


@torch.no_grad()
def measure(model: Transformer, tokens: Tensor, targets: Tensor, edges: Tensor) -> Metrics:
    """Count what a model predicts.

    Args:
        model: on plain tensors or on DTensors.
        tokens: (B, T) integers.
        targets: (B, T), the byte that follows each token.
        edges: `EDGES` as a tensor, on the mesh of the model.
    """
    logits = model.logits(tokens)
    best = logits.topk(1, -1)
    right = logits.gather(-1, targets.unsqueeze(-1))
    classes = torch.searchsorted(edges, best.values.flatten())
    scores = torch.bincount(classes, minlength=len(EDGES) + 1)
    distinct = torch.unique(best.indices.flatten()).numel()
    gap = functional.mse_loss(right, best.values)
    return Metrics(distinct, tuple(_whole(scores).tolist()), _whole(gap).item())


def _whole(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x
