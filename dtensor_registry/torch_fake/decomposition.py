"""Why torch cannot follow placements through the decomposition of an op."""

from __future__ import annotations

from torch.distributed.tensor._op_schema import OpSchema

from dtensor_registry.torch_runtime.dispatcher import propagator


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
