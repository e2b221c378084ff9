"""Choices as an explanation shows them: what becomes of each input, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtensor_registry.explanation import Choice, Move, Step
from dtensor_registry.explanation.values import Placed
from dtensor_registry.placements import Placements
from dtensor_registry.planner import Candidate, itemise, needs_torch
from dtensor_registry.planner.redistribution import collective_of
from dtensor_registry.torch_fake.torch_ways import steps_of_torch
from dtensor_registry.torch_runtime.conversion import (
    placements_from_torch,
)
from dtensor_registry.torch_runtime.decision import Spec
from dtensor_registry.torch_runtime.move_prices import (
    nbytes_of,
    pricer,
    topology_of,
    torch_plans_otherwise,
)


def placed(placements: Placements | None) -> Placed | None:
    """Write the placements of one tensor in the notation."""
    return None if placements is None else tuple(map(str, placements))


def mesh_dims_of(specs: Sequence[Spec]) -> tuple[str, ...]:
    """Name the dims of a mesh, by number where they have no name."""
    mesh = specs[0].mesh
    return tuple(mesh.mesh_dim_names or map(str, range(mesh.ndim)))


def choice_of(specs: Sequence[Spec], candidate: Candidate) -> Choice:
    """Show a choice.

    Args:
        specs: the inputs as they come.
        candidate: the choice; what it costs is reckoned anew.
    """
    price = pricer(specs[0].mesh, [(spec,) for spec in specs])
    costs = [price(at, target)[0] for at, target in enumerate(candidate.inputs)]
    return Choice(
        outputs=tuple(map(placed, candidate.outputs)),
        inputs=tuple(tuple(map(str, placements)) for placements in candidate.inputs),
        microseconds=_finite(sum(costs)),
        rows=candidate.rows,
        moves=tuple(
            _move(spec, target, cost)
            for spec, target, cost in zip(specs, candidate.inputs, costs, strict=True)
        ),
    )


def _move(spec: Spec, target: Placements, cost: float) -> Move:
    source = placements_from_torch(spec.placements)
    steps: tuple[Step, ...] = ()
    if source != target:
        by_torch = needs_torch(source, target) or torch_plans_otherwise(spec)
        steps = _torchs_steps(spec, target) if by_torch else _steps(spec, source, target)
    return Move(tuple(map(str, source)), tuple(map(str, target)), _finite(cost), steps)


def _steps(spec: Spec, source: Placements, target: Placements) -> tuple[Step, ...]:
    names = mesh_dims_of([spec])
    return tuple(
        Step(
            mesh_dim=names[item.step.mesh_dim],
            source=str(item.step.source),
            target=str(item.step.target),
            collective=item.collective,
            nbytes=item.nbytes,
            microseconds=_finite(item.microseconds),
        )
        for item in itemise(source, target, nbytes_of(spec), topology_of(spec.mesh))
    )


def _torchs_steps(spec: Spec, target: Placements) -> tuple[Step, ...]:
    """Ask torch which way it goes; what each step costs it does not say."""
    names = mesh_dims_of([spec])
    return tuple(
        Step(names[at], str(before), str(after), collective_of(before, after), None, None)
        for at, before, after in steps_of_torch(spec, target)
    )


def _finite(cost: float) -> float | None:
    return None if math.isinf(cost) else cost
