"""One program three times: in one process, on bare torch, and with the registry installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.debug import CommDebugMode

import dtensor_registry as dr
from dtensor_registry.placements import parse_placements
from dtensor_registry.settings import Settings
from dtensor_registry.torch_runtime.conversion import placements_to_torch

DEFAULT = Settings().order
PLUGINS_FIRST = ("*", "corrections", "pointwise", "matrix", "structure", "torch")
ORDERS = {"default": DEFAULT, "plugins first": PLUGINS_FIRST}

Program: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program gave.

    Attributes:
        values: the whole of each tensor that it returned, or ().
        placements: of each; "" for a plain tensor.
        collectives: how many it took.
        error: the first line of what it raised, or "".
    """

    values: tuple[torch.Tensor, ...] = ()
    placements: tuple[str, ...] = ()
    collectives: int = 0
    error: str = ""

    def differs_from(self, alone: Outcome) -> str:
        """Say where its values are not those of one process, or ""."""
        for at, (value, wanted) in enumerate(zip(self.values, alone.values, strict=True)):
            if value.shape != wanted.shape:
                return f"result {at} has shape {tuple(value.shape)}, not {tuple(wanted.shape)}"
            if not torch.allclose(value, wanted, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"result {at} is {value}, not {wanted}"
        return ""

    def worse_than(self, bare: Outcome) -> str:
        """Say in what this is worse than what bare torch did right, or ""."""
        if self.error:
            return self.error
        if self.placements != bare.placements:
            return f"gives {self.placements}, bare torch {bare.placements}"
        if self.collectives > bare.collectives:
            return f"takes {self.collectives} collectives, bare torch {bare.collectives}"
        return ""


class Comparison:
    """Runs programs on one mesh."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    def place(self, whole: torch.Tensor, placements: str) -> DTensor:
        """Distribute a tensor: `"S(0), R"`, `"_S(0, 2), S(0)"`, `"P(avg), R"`.

        Among ranks that hold a pending sum the last has all of it, so that what forgets to add
        up is seen; what they hold for an average differs too. `"S(0), S(0) | 1, 0"` cuts mesh
        dim 1 first.
        """
        text, _, order = placements.partition("|")
        if order:
            return self._ordered(whole, [int(at) for at in order.split(",")])
        wanted = placements_to_torch(parse_placements(text))  # type: ignore[arg-type]
        cut = [Replicate() if p.is_partial() else p for p in wanted]
        everywhere = DTensor.from_local(
            self._on_ranks(lambda rank: whole), self.mesh, [Replicate()] * self.mesh.ndim
        )
        pieces = everywhere.redistribute(self.mesh, cut).to_local()
        partial = [at for at, p in enumerate(wanted) if p.is_partial()]
        if not partial:
            return DTensor.from_local(
                pieces, self.mesh, wanted, shape=whole.shape, stride=whole.stride()
            )

        def share(rank: int) -> torch.Tensor:
            held = pieces._local_tensors[rank].clone()
            for mesh_dim in partial:
                at = int((self.mesh.mesh == rank).nonzero()[0, mesh_dim])
                last = at == self.mesh.size(mesh_dim) - 1
                if wanted[mesh_dim].reduce_op == "sum":
                    held = held if last else torch.zeros_like(held)
                elif wanted[mesh_dim].reduce_op == "avg":
                    held = held * self.mesh.size(mesh_dim) if last else torch.zeros_like(held)
                elif wanted[mesh_dim].reduce_op == "max":
                    held = held if last else held - 1
                else:
                    held = held if last else held + 1
            return held

        return DTensor.from_local(
            self._on_ranks(share), self.mesh, wanted, shape=whole.shape, stride=whole.stride()
        )

    def _on_ranks(self, value: Callable[[int], torch.Tensor]) -> LocalTensor:
        ranks = range(self.mesh.size())
        return LocalTensor({rank: value(rank).clone() for rank in ranks})  # type: ignore[no-untyped-call]

    def _ordered(self, whole: torch.Tensor, order: Sequence[int]) -> DTensor:
        """Cut dim 0 over all mesh dims, in another order than from the outermost in."""
        wanted = placements_to_torch(parse_placements(", ".join(["S(0)"] * self.mesh.ndim)))  # type: ignore[arg-type]
        sizes = [self.mesh.size(mesh_dim) for mesh_dim in order]

        def share(rank: int) -> torch.Tensor:
            held = whole
            for mesh_dim, ranks in zip(order, sizes, strict=True):
                at = int((self.mesh.mesh == rank).nonzero()[0, mesh_dim])
                held = held.chunk(ranks)[at]
            return held

        meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)
        entry = ShardOrderEntry(0, tuple(order))
        spec = DTensorSpec(self.mesh, wanted, tensor_meta=meta, shard_order=(entry,))
        return DTensor(self._on_ranks(share), spec, requires_grad=False)

    def run(self, program: Program, tensors: Sequence[tuple[torch.Tensor, str]]) -> Outcome:
        """Run a program on tensors that are placed as told; in one process where none is."""
        given = [whole.clone() if not text else self.place(whole, text) for whole, text in tensors]
        try:
            with CommDebugMode() as counted:
                found = program(*given)
            results = found if isinstance(found, (list, tuple)) else [found]
            values = tuple(map(_whole, results))
        except Exception as error:
            return Outcome(error=f"{type(error).__name__}: {error}".split("\n")[0])
        placements = (
            ", ".join(map(str, result.placements)) if isinstance(result, DTensor) else ""
            for result in results
        )
        return Outcome(values, tuple(placements), counted.get_total_counts())

    def outcomes(
        self,
        programs: Mapping[str, Program],
        *tensors: tuple[torch.Tensor, str],
        order: Sequence[str] = DEFAULT,
    ) -> dict[str, Outcome]:
        """Run programs with the registry installed; no number that they give is wrong.

        Each runs twice, so that what torch caches is used as well.
        """
        found: dict[str, Outcome] = {}
        with dr.install(Settings(order=tuple(order))):
            for name, program in programs.items():
                first, found[name] = self.run(program, tensors), self.run(program, tensors)
                again = (found[name].placements, found[name].error)
                assert (first.placements, first.error) == again, name
        wrong = []
        for name, program in programs.items():
            alone = self.run(program, [(whole, "") for whole, _ in tensors])
            assert not alone.error, f"{name} in one process: {alone.error}"
            if not found[name].error and found[name].differs_from(alone):
                wrong.append(f"{name}: {found[name].differs_from(alone)}")
        assert not wrong, "\n".join(wrong)
        return found

    def assert_none_worse(
        self,
        programs: Mapping[str, Program],
        *tensors: tuple[torch.Tensor, str],
        order: Sequence[str] = DEFAULT,
    ) -> dict[str, Outcome]:
        """Hold programs against bare torch and one process; give what they did here.

        What bare torch does right is done right, with no other placements and no more
        collectives; with another order of rules placements may differ and a refusal is allowed,
        a wrong number is not.
        """
        bare = {name: self.run(program, tensors) for name, program in programs.items()}
        found = self.outcomes(programs, *tensors, order=order)
        if tuple(order) != DEFAULT:
            return found
        worse = []
        for name, program in programs.items():
            alone = self.run(program, [(whole, "") for whole, _ in tensors])
            if bare[name].error or bare[name].differs_from(alone):
                continue
            problem = found[name].worse_than(bare[name])
            if problem:
                worse.append(f"{name}: {problem}")
        assert not worse, "\n".join(worse)
        return found


def _whole(tensor: Any) -> torch.Tensor:
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    if isinstance(whole, LocalTensor):
        return whole.reconcile()  # type: ignore[no-untyped-call,no-any-return]
    return whole.detach().clone()  # type: ignore[no-any-return]
