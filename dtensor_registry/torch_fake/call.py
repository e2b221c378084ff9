"""A call on DTensors without data, and what becomes of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._pytree import tree_leaves, tree_map_only

from dtensor_registry.errors import RegistryError
from dtensor_registry.placements import Placements
from dtensor_registry.torch_fake.dispatch import quiet, without_data
from dtensor_registry.torch_patch.watch import OpRun, watching
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.conversion import placements_to_torch
from dtensor_registry.torch_runtime.decision import Decision, Spec, Specs, recording, specs_in
from dtensor_registry.torch_runtime.execute import waits_for_shapes


class FakeTensors:
    """Makes DTensors that have no data, of one mode."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)

    def tensor(
        self, shape: Sequence[int], dtype: torch.dtype, placements: Placements, mesh: DeviceMesh
    ) -> DTensor:
        """Make one from its description."""
        whole = torch.empty(tuple(shape), dtype=dtype, device="meta")
        meta = TensorMeta(whole.shape, whole.stride(), dtype)
        spec = DTensorSpec(mesh, placements_to_torch(placements), tensor_meta=meta)
        return without_data(spec, self.mode)

    def like(self, tensor: DTensor) -> DTensor:
        """Make one like a tensor, which is only looked at."""
        return without_data(tensor._spec, self.mode, tensor._local_tensor.device)


@dataclass(frozen=True, slots=True)
class FakeCall:
    """A call that can be dispatched.

    Attributes:
        op: the overload.
        args: positional arguments, tensors as DTensors without data.
        kwargs: keyword arguments, likewise.
        mesh: of all its tensors.
        tensors: what made them.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mesh: DeviceMesh
    tensors: FakeTensors

    @property
    def schema(self) -> OpSchema:
        """The call as torch's propagator writes it."""
        return read_arguments(self.op, self.args, self.kwargs, None).schema

    @property
    def specs(self) -> Specs:
        """Its tensors, in row order."""
        return specs_in(self.schema)

    def error_on_whole_tensors(self) -> Exception | None:
        """Run the op on whole tensors: what it raises there has no bearing on sharding."""

        def whole(tensor: DTensor) -> torch.Tensor:
            meta: Any = tensor._spec.tensor_meta
            return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype)

        # torch would report what the op raises, which is given back here.
        with quiet("torch._subclasses.fake_tensor"), self.tensors.mode, torch.no_grad():
            args, kwargs = tree_map_only(DTensor, whole, (self.args, self.kwargs))
            try:
                self.op(*args, **kwargs)
            except Exception as error:
                lacks_kernel = waits_for_shapes(error) or isinstance(error, NotImplementedError)
                return None if lacks_kernel else error
        return None


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What became of a call.

    Attributes:
        decision: what dispatch decided of it, last; None if nothing was to be decided.
        outputs: what each output is, None for one that is no tensor; None if nothing came out.
        ran: the ops that ran, and what they communicated.
        reads: whether it came to where it needs data, and went no further.
        error: what was raised, None if the call went through.
        warnings: what was said on the way.
    """

    decision: Decision | None
    outputs: tuple[Spec | None, ...] | None
    ran: tuple[OpRun, ...]
    reads: bool
    error: Exception | None
    warnings: tuple[str, ...]


def dispatch(call: FakeCall) -> Dispatched:
    """Run a call as DTensor runs it, and take down what is decided."""
    ran: list[OpRun] = []
    made: list[Decision] = []
    result: Any = None
    error: Exception | None = None
    with (
        warnings.catch_warnings(record=True) as said,
        recording(made.append),
        watching(ran.append),
        torch.no_grad(),
        call.tensors.mode,
    ):
        warnings.simplefilter("always")
        try:
            result = call.op(*call.args, **call.kwargs)
        except Exception as raised:  # whatever it is, it is the answer that a user gets
            error = raised
    decision = next((d for d in reversed(made) if d.schema.op is call.op), None)
    # A call that comes to where it needs data has no error of its own: there is no more to see.
    reads = error is not None and waits_for_shapes(error) and named_error(error) is None
    return Dispatched(
        decision,
        tuple(_outputs(result)) if error is None and result is not None else None,
        tuple(ran),
        reads,
        None if reads else error,
        tuple(dict.fromkeys(str(w.message) for w in said)),
    )


def named_error(error: BaseException | None) -> RegistryError | None:
    """Find the host's own error in what torch wraps around it."""
    while error is not None:
        if isinstance(error, RegistryError):
            return error
        error = error.__cause__
    return None


def bound(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Put arguments in their positions, as torch's dispatcher does before DTensor sees them.

    What cannot be put there stays as it is, for the op to say so.
    """
    placed, named = list(args), dict(kwargs)
    positional = [argument for argument in op._schema.arguments if not argument.kwarg_only]
    for argument in positional[len(placed) :]:
        if not any(later.name in named for later in positional[len(placed) :]):
            break
        if argument.name in named:
            placed.append(named.pop(argument.name))
        elif argument.has_default_value():
            placed.append(argument.default_value)
        else:
            break
    return placed, named


def _outputs(result: Any) -> Iterator[Spec | None]:
    for leaf in tree_leaves(result, is_leaf=lambda value: value is None):
        if leaf is None:
            yield None
        elif isinstance(leaf, DTensor):
            yield leaf._spec
