"""Which way torch goes: to move a tensor, and what stops it in the decomposition of an op."""

from __future__ import annotations

from collections.abc import Iterator

from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._redistribute import _gen_transform_infos

from dtensor_registry.placements import Placement, Placements
from dtensor_registry.torch_runtime.conversion import from_torch, placements_to_torch
from dtensor_registry.torch_runtime.dispatcher import propagator


def steps_of_torch(
    spec: DTensorSpec, target: Placements
) -> Iterator[tuple[int, Placement, Placement]]:
    """Ask torch which way it moves a tensor: the mesh dim, the placement before and after."""
    wanted = DTensorSpec(spec.mesh, placements_to_torch(target), tensor_meta=spec.tensor_meta)
    for info in _gen_transform_infos(spec, wanted):
        before, after = map(from_torch, info.src_dst_placements)
        yield info.mesh_dim, before, after


def what_stops(schema: OpSchema) -> str | None:
    """Say what stops torch in an op's decomposition, whatever the placements; None: nothing."""
    strategy = propagator().decomp_strategy
    try:
        follow, fake_mesh = strategy._propagate_through_decomp, strategy._get_fake_mesh("cpu")
    except AttributeError:  # no name that the host stands on: a torch without it is none the worse
        return "this torch does not say why"
    stopped: str | None = None
    for placements in strategy._get_candidate_placements(schema):
        try:
            follow(schema, placements, fake_mesh)
        except Exception as error:
            stopped = str(error).partition("\n")[0] or type(error).__name__
            if isinstance(error, NotImplementedError):
                break  # torch tries no other
        else:
            return None
    return stopped
