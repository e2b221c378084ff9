"""How the inputs of a call on DTensors may come: as rows say, in part, and at random."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Placement,
    Placements,
    Shard,
    StridedShard,
    parse_placements,
    show_placements,
)
from dtensor_registry.rules import Rule
from dtensor_registry.rules.well_formed import plain, problem
from dtensor_registry_kit.judging.behaviour import query
from dtensor_registry_kit.samples.sample import Sample
from dtensor_registry_kit.simulation.distribute import is_inexact
from dtensor_registry_kit.simulation.reference_run import ReferenceRun

InputPlacements: TypeAlias = tuple[Placements, ...]
"""For each input, its placements over the mesh dims."""


def input_rows(rule: Rule, op: Any, sample: Sample) -> list[list[Placement]]:
    """List the placements of the inputs in each row that a rule offers, if it is a row."""
    ranks = [tensor.dim() for tensor in sample.inputs]
    rows: list[list[Placement]] = []
    for row in query(rule, op, sample).rows:
        if isinstance(row, (list, tuple)) and len(row) >= len(ranks):
            inputs = [plain(entry) for entry in row[len(row) - len(ranks) :]]
            if problem(inputs, 0, ranks) is None:
                rows.append([p for p in inputs if p is not None])
    return rows


def list_input_placements(
    whole: ReferenceRun,
    rows: Sequence[Sequence[Placement]],
    mesh: Sequence[int],
    draws: int,
    seed: int,
    *,
    alone: bool = True,
) -> Iterator[InputPlacements]:
    """List ways in which the inputs of a call may come, each once.

    First as each row says, on all mesh dims; then drawn ways: on each mesh dim as some row
    says, or at random.

    Args:
        whole: the call.
        rows: placements of the inputs on one mesh dim.
        mesh: ranks per mesh dim.
        draws: how many ways to draw.
        seed: of what is drawn.
        alone: whether each row gets its own turn; without it there are only the drawn ways.
    """
    dice = random.Random(seed)
    choices = [_choices(tensor) for tensor in whole.inputs]

    def drawn() -> list[Placement]:
        return [dice.choice(choice) for choice in choices]

    ways = [[list(row)] * len(mesh) for row in rows] if alone else []
    for number in range(draws):
        ways.append(
            [list(dice.choice([*rows, drawn()] if number % 2 else [drawn()])) for _ in mesh]
        )
    seen: set[InputPlacements] = set()
    for way in ways:
        placements = tuple(_of_one_kind(column) for column in zip(*way, strict=True))
        if placements not in seen and _can_be_handed_out(whole, placements):
            seen.add(placements)
            yield placements


def show_input_placements(placements: InputPlacements) -> str:
    """Print how the inputs are placed, one tensor per `;`.

    >>> show_input_placements(((Shard(0), REPLICATE), (REPLICATE, REPLICATE)))
    'S(0), R; R, R'
    """
    return "; ".join(show_placements(column) for column in placements)


def read_input_placements(text: str) -> InputPlacements:
    """Read what `show_input_placements` prints.

    Raises:
        PlacementSyntaxError: for what is no placement; a placeholder is none here.

    >>> show_input_placements(read_input_placements("S(0), R; P, R"))
    'S(0), R; P(sum), R'
    """
    return tuple(
        tuple(p for p in map(plain, parse_placements(column)) if p is not None)
        for column in text.split(";")
    )


def _choices(tensor: torch.Tensor) -> list[Placement]:
    choices: list[Placement] = [REPLICATE, *map(Shard, range(tensor.dim()))]
    if tensor.dtype != torch.bool:
        choices += [Partial("sum"), *([Partial("avg")] if is_inexact(tensor) else [])]
    return choices


def _of_one_kind(column: Sequence[Placement]) -> Placements:
    """A tensor cannot be partial in two ways: keep the first kind."""
    kinds = [placement for placement in column if isinstance(placement, Partial)]
    return tuple(kinds[0] if isinstance(p, Partial) else p for p in column)


def _can_be_handed_out(whole: ReferenceRun, placements: InputPlacements) -> bool:
    for column, tensor in zip(placements, whole.inputs, strict=True):
        for placement in column:
            if isinstance(placement, StridedShard):
                return False
            if isinstance(placement, Partial) and placement.native is not None:
                return False
            if isinstance(placement, Shard) and not tensor.shape[placement.tensor_dim]:
                return False
    return True
