"""Follow placements through plain PyTorch, op by op, by the rules that are in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate

from dtensor_registry.errors import DerivationError, NoValidRowError
from dtensor_registry.placements import Placement
from dtensor_registry.rules.metadata import fill
from dtensor_registry.torch_runtime.conversion import from_torch, to_torch
from dtensor_registry_kit.torch_private import (
    DTensorSpec,
    OpOverload,
    TorchDispatchMode,
    propagate,
    spec_of,
    tree_leaves,
    tree_map,
)


class Moved(Exception):  # noqa: N818 - it is no error, it ends a trace
    """An op would have an input moved, so the placements that it was given make no row."""


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs ops on `meta` tensors, and keeps for each what it would be placed as.

    A tensor that the reference makes by itself is the same on every rank.

    Attributes:
        passed: the ops that were passed through, in order of first appearance.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passed: dict[str, None] = {}
        self._mesh = mesh
        self._specs: dict[int, DTensorSpec] = {}
        self._alive: list[torch.Tensor] = []  # so that no id is used again

    def place(self, tensor: torch.Tensor, placement: Any) -> None:
        """Say how a tensor is placed."""
        self._specs[id(tensor)] = spec_of(tensor, placement, self._mesh)
        self._alive.append(tensor)

    def placement(self, tensor: torch.Tensor) -> Any:
        """Say how a tensor is placed, as torch's own value."""
        return self._spec(tensor).placements[0]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise DerivationError(
                f"{func} draws random numbers, which every rank would draw for itself;"
                " derive from a reference that takes them as an argument"
            )
        if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        self.passed[str(func)] = None
        placed = self._propagate(func, args, kwargs)
        out = func(*args, **kwargs)
        self._record(out, placed)
        return out

    def _spec(self, tensor: torch.Tensor) -> DTensorSpec:
        if id(tensor) not in self._specs:
            self.place(tensor, Replicate())
        return self._specs[id(tensor)]

    def _propagate(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        given = tree_map(
            lambda v: self._spec(v) if isinstance(v, torch.Tensor) else v, (args, kwargs)
        )
        try:
            schema, answer = propagate(func, *given)
        except NotImplementedError as error:
            raise DerivationError(
                f"the reference uses {func}, for which there is no rule: {error}\n"
                "  Install a plugin that has one, or write the reference with other ops."
            ) from error
        except (NoValidRowError, RuntimeError, ValueError, IndexError) as error:
            raise Moved(str(error)) from error  # no way to run it on these placements
        wanted = answer.redistribute_schema
        if answer.needs_redistribute and wanted is not None:
            for have, want in zip(schema.args_spec, wanted.args_spec, strict=True):
                if have.placements != want.placements:
                    raise Moved(f"{func} wants {want.placements} for {have.placements}")
        return answer.output_spec

    def _record(self, out: Any, placed: Any) -> None:
        if isinstance(out, torch.Tensor):
            spec = placed if isinstance(placed, DTensorSpec) else None
            self.place(out, Replicate() if spec is None else spec.placements[0])
        elif isinstance(out, (list, tuple)):
            listed = placed if isinstance(placed, (list, tuple)) else [placed] * len(out)
            for one, its in zip(out, listed, strict=True):
                self._record(one, its)


def trace(
    reference: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    placements: Sequence[Placement],
    ranks: int,
) -> tuple[list[Placement], tuple[str, ...]]:
    """Find how the outputs of a reference are placed where its inputs are placed so.

    Args:
        reference: plain PyTorch.
        args: positional arguments; only shapes, strides and dtypes of tensors count.
        kwargs: keyword arguments.
        placements: on one mesh dim, of each tensor in row order.
        ranks: size of the mesh.

    Returns:
        The placement of each tensor that it returns, and the ops that it passed through.

    Raises:
        Moved: if an op would have an input moved.
        DerivationError: for an op that has no rule, or draws random numbers.
    """
    tensors = [leaf for leaf in tree_leaves((list(args), dict(kwargs))) if _is_tensor(leaf)]
    metas = [
        torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        for tensor in tensors
    ]
    tracer = Tracer(_mesh(ranks))
    for meta, placement in zip(metas, placements, strict=True):
        tracer.place(meta, to_torch(placement))
    meta_args, meta_kwargs = fill(args, kwargs, metas)
    with torch.no_grad(), tracer:
        result = reference(*meta_args, **meta_kwargs)
    outputs = [leaf for leaf in tree_leaves(result) if _is_tensor(leaf)]
    return [from_torch(tracer.placement(leaf)) for leaf in outputs], tuple(tracer.passed)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


@cache
def _mesh(ranks: int) -> DeviceMesh:
    """Make a mesh that stands for any: no rank of it is ever talked to."""
    return DeviceMesh("cpu", list(range(ranks)), _init_backend=False, _rank=0)
