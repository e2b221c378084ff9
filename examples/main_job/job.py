"""What one run is asked to do, and what it says while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from main_job.metrics import Metrics
from main_job.model import ModelSize
from main_job.report import OpRow

MESH_SHAPE = (2, 2)
MESH_DIM_NAMES = ("dp", "tp")
RANKS = MESH_SHAPE[0] * MESH_SHAPE[1]


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that decides the losses; both runs get the same one.

    Attributes:
        steps: optimizer steps.
        batch: sequences per step, over all ranks.
        seed: of the weights and of the choice of text.
        learning_rate: of AdamW.
        size: the sizes of the model.
    """

    steps: int = 30
    batch: int = 8
    seed: int = 0
    learning_rate: float = 3e-3
    size: ModelSize = field(default_factory=ModelSize)


@dataclass(frozen=True, slots=True)
class StepDone:
    """The loss of one more step."""

    loss: float


@dataclass(frozen=True, slots=True)
class OpsSeen:
    """The ops that ran on rank 0, once all steps are done."""

    rows: tuple[OpRow, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the trained model predicts."""

    metrics: Metrics


Event: TypeAlias = StepDone | OpsSeen | Measured
"""What rank 0 tells whoever watches the run."""
