"""Calls that bare torch has wrong, and the same calls with the corrections, beside one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from dtensor_registry import Installation
from dtensor_registry.errors import RefusedCallError

Place: TypeAlias = Callable[[torch.Tensor, Any], Any]
Program: TypeAlias = Callable[[Place], list[Any]]
Registry: TypeAlias = Callable[..., Installation]
SimulatedMesh: TypeAlias = Callable[..., DeviceMesh]

R = Replicate()
CORRECTIONS = "dtensor-registry-corrections"
ROWS = torch.tensor(
    [[0, 4, 2, 1, 3], [1, 0, 3, 2, 4], [4, 3, 2, 1, 0], [2, 2, 1, 0, 3], [3, 1, 4, 4, 2]]
)


@dataclass(frozen=True)
class Example:
    """A program on 4 ranks; how many collectives it may take, corrected."""

    program: Program
    collectives: int


def numbers(*shape: int) -> torch.Tensor:
    # Not drawn: each simulated rank would draw its own.
    return (torch.arange(math.prod(shape), dtype=torch.double) * 0.618).frac().reshape(shape)


def gradients(value: Any, *tensors: Any) -> list[Any]:
    return [value, *torch.autograd.grad(value, tensors)]


def loss(function: Callable[[Any, Any], Any], *shape: int, target: Any = None) -> Program:
    def program(place: Place) -> list[Any]:
        x = place(numbers(*shape), Shard(0)).requires_grad_()
        y = place(numbers(*shape).flip(0), target or Shard(0))
        return gradients(function(x, y), x)

    return program


def gather(tensor: Any, index: Any) -> Program:
    def program(place: Place) -> list[Any]:
        x = place(numbers(10, 5), tensor).requires_grad_()
        picked = torch.gather(x, 1, place(ROWS, index))
        return [picked, *gradients(picked.square().sum(), x)]

    return program


def scatter(tensor: Any, other: Any) -> Program:
    def program(place: Place) -> list[Any]:
        x = place(numbers(10, 5), tensor).requires_grad_()
        source = place(numbers(5, 5), other).requires_grad_()
        return gradients(x.scatter_add(1, place(ROWS, other), source).square().sum(), x, source)

    return program


def index_add(tensor: Any, source: Any) -> Program:
    def program(place: Place) -> list[Any]:
        x = place(numbers(5), tensor)
        x.index_add_(0, place(torch.tensor([0, 2, 4]), R), place(numbers(3), source), alpha=2)
        return [x]

    return program


def of(function: Callable[[Any], Any], placement: Any, *shape: int) -> Program:
    return lambda place: [function(place(numbers(*shape) - 0.5, placement))]


def convolution(
    image: Any,
    weight: Any,
    sizes: tuple[int, ...] = (4, 4, 5, 8),
    kernel: tuple[int, ...] = (4, 4, 3, 3),
    **options: Any,
) -> Program:
    """Convolve, and differentiate by image, weight and bias; the bias is cut as the channels."""

    def program(place: Place) -> list[Any]:
        x = place(numbers(*sizes), image).requires_grad_()
        w = place(numbers(*kernel), weight).requires_grad_()
        transposed = options.get("transposed", False)
        made = kernel[1] * options.get("groups", 1) if transposed else kernel[0]
        b = place(numbers(made), R).requires_grad_()
        dims = len(sizes) - 2
        out = torch.convolution(
            x,
            w,
            b,
            stride=[options.get("stride", 1)] * dims,
            padding=[options.get("padding", 1)] * dims,
            dilation=[1] * dims,
            transposed=transposed,
            output_padding=[0] * dims,
            groups=options.get("groups", 1),
        )
        return [out, *gradients(out.square().sum(), x, w, b)]

    return program


WRONG = {
    "convolution with a pending weight": Example(convolution(R, Partial()), 2),
    "convolution of a pending image": Example(convolution(Partial(), R), 2),
    "convolution with cut channels to make": Example(convolution(R, Shard(0)), 0),
    "convolution with cut channels to take": Example(convolution(Shard(1), Shard(1)), 2),
    "convolution of cut channels with a whole weight": Example(convolution(Shard(1), R), 3),
    "convolution with a cut kernel": Example(convolution(R, Shard(2)), 2),
    "depthwise convolution with cut channels": Example(
        convolution(Shard(1), Shard(0), kernel=(4, 1, 3, 3), groups=4), 0
    ),
    "grouped convolution with whole groups": Example(
        convolution(Shard(1), Shard(0), (4, 8, 5, 8), (8, 2, 3, 3), groups=4), 0
    ),
    "grouped convolution with cut groups": Example(
        convolution(Shard(1), Shard(0), (4, 4, 5, 8), (4, 2, 3, 3), groups=2), 4
    ),
    "transposed convolution with cut channels": Example(
        convolution(R, Shard(1), kernel=(4, 8, 3, 3), transposed=True), 0
    ),
    "convolution in one dim": Example(convolution(R, Shard(0), (4, 4, 8), (4, 4, 3)), 0),
    "convolution in three dims": Example(
        convolution(R, Shard(0), (4, 4, 4, 4, 4), (4, 4, 3, 3, 3)), 0
    ),
    "convolution of one image on four ranks": Example(convolution(Shard(0), R, (1, 4, 5, 8)), 2),
    "patches of a cut image": Example(
        convolution(Shard(2), R, (4, 4, 8, 8), (4, 4, 2, 2), stride=2, padding=0), 0
    ),
    "convolution of a cut image": Example(convolution(Shard(3), R), 2),
    "mse_loss of uneven pieces": Example(loss(F.mse_loss, 5, 5), 0),
    "mse_loss with a whole target": Example(loss(F.mse_loss, 5, 5, target=R), 0),
    "gradient of mse_loss of even pieces": Example(loss(F.mse_loss, 8, 5), 0),
    "smooth_l1_loss": Example(loss(F.smooth_l1_loss, 5, 5), 0),
    "huber_loss": Example(loss(F.huber_loss, 5, 5), 0),
    "binary_cross_entropy": Example(loss(F.binary_cross_entropy, 5, 5), 0),
    "binary_cross_entropy_with_logits": Example(loss(F.binary_cross_entropy_with_logits, 5, 5), 0),
    "soft_margin_loss": Example(loss(F.soft_margin_loss, 5, 5), 0),
    "gather with a shorter index that is cut": Example(gather(R, Shard(0)), 2),
    "gather from a cut tensor with a shorter index": Example(gather(Shard(0), R), 1),
    "gradient of scatter_add with a shorter index": Example(scatter(R, Shard(0)), 3),
    "index_add_ into a cut tensor": Example(index_add(Shard(0), R), 1),
    "index_add_ of a pending sum": Example(index_add(R, Partial()), 1),
    "amax of an empty piece": Example(of(lambda x: x.amax(0), Shard(0), 1, 1), 1),
    "max of an empty piece": Example(of(torch.max, Shard(0), 3, 16), 1),
    "argmax of an empty piece": Example(of(torch.argmax, Shard(0), 3, 16), 1),
    "largest norm of an empty piece": Example(
        of(lambda x: torch.linalg.vector_norm(x, float("inf")), Shard(0), 3, 16), 1
    ),
    "largest norm of a pending maximum": Example(
        of(lambda x: torch.linalg.vector_norm(x, float("inf")), Partial("max"), 5, 5), 1
    ),
    "fill_ of a pending sum": Example(of(lambda x: x.fill_(8), Partial(), 4, 5), 0),
    "fill_ of a pending sum with another value": Example(
        of(lambda x: x.fill_(8).fill_(3.5), Partial(), 4, 5), 0
    ),
    "irfft of a pending minimum": Example(of(torch.fft.irfft, Partial("min"), 4, 5), 1),
}

RIGHT: dict[str, Program] = {
    "convolution of a cut batch": convolution(Shard(0), R),
    "convolution of an uneven batch": convolution(Shard(0), R, (5, 4, 5, 8)),
    "convolution of whole tensors": convolution(R, R),
    "transposed convolution of a cut batch": convolution(Shard(0), R, transposed=True),
    "mse_loss of even pieces, forward": lambda place: [
        F.mse_loss(place(numbers(8, 5), Shard(0)), place(numbers(8, 5).flip(0), Shard(0)))
    ],
    "mse_loss that adds up": loss(lambda x, y: F.mse_loss(x, y, reduction="sum"), 5, 5),
    "gather with an index of the same size": lambda place: [
        torch.gather(place(numbers(5, 5), Shard(0)), 1, place(ROWS, Shard(0)))
    ],
    "gather along a cut dim of the index": gather(R, Shard(1)),
    "index_add_ off the cut dim": lambda place: [
        place(numbers(4, 8), Shard(1)).index_add_(
            0, place(torch.tensor([0, 2]), R), place(numbers(2, 8), Shard(1))
        )
    ],
    "amax of pieces that all hold something": of(lambda x: x.amax(0), Shard(0), 8, 2),
    "amax along another dim": of(lambda x: x.amax(1), Shard(0), 3, 16),
    "argmax of a pending maximum": of(torch.argmax, Partial("max"), 3, 16),
    "euclidean norm of an empty piece": of(torch.linalg.vector_norm, Shard(0), 3, 16),
    "fill_ of a pending average": of(lambda x: x.fill_(8), Partial("avg"), 4, 5),
    "fill_ of a pending maximum": of(lambda x: x.fill_(8), Partial("max"), 4, 5),
    "fill_ of a cut tensor": of(lambda x: x.fill_(8).fill_(3), Shard(0), 4, 5),
    "rfft of a pending sum": of(torch.fft.rfft, Partial(), 4, 5),
}


@pytest.mark.parametrize("name", WRONG)
def test_torch_is_wrong_and_the_correction_is_right(
    name: str, simulated_mesh: SimulatedMesh, registry: Registry
) -> None:
    example = WRONG[name]
    place = placing(simulated_mesh(4))
    assert not is_right(example.program, place)
    registry(CORRECTIONS)
    with CommDebugMode() as moved:
        found = example.program(place)
    assert_equal(found, example.program(whole))
    assert moved.get_total_counts() <= example.collectives


@pytest.mark.parametrize("name", RIGHT)
def test_what_torch_has_right_stays_as_it_is(
    name: str, simulated_mesh: SimulatedMesh, registry: Registry
) -> None:
    place = placing(simulated_mesh(4))
    with CommDebugMode() as bare:
        before = RIGHT[name](place)
    registry(CORRECTIONS)
    with CommDebugMode() as corrected:
        after = RIGHT[name](place)
    assert corrected.get_comm_counts() == bare.get_comm_counts()
    assert [x.placements for x in after] == [x.placements for x in before]
    assert_equal(after, RIGHT[name](whole))


def test_a_batch_that_two_mesh_dims_cut_is_convolved_in_pieces(
    simulated_mesh: SimulatedMesh, registry: Registry
) -> None:
    mesh = simulated_mesh(2, 2)
    image, weight = numbers(4, 2, 5, 5), numbers(2, 2, 3, 3)
    x = distribute_tensor(image, mesh, [Shard(0), Shard(0)], src_data_rank=None)
    w = distribute_tensor(weight, mesh, [R, R], src_data_rank=None)
    registry(CORRECTIONS)
    with CommDebugMode() as moved:
        out = F.conv2d(x, w, padding=1)
    assert out.placements == (Shard(0), Shard(0))
    assert moved.get_total_counts() == 0
    assert_equal([out], [F.conv2d(image, weight, padding=1)])


def test_a_sum_is_not_added_to_a_pending_one(
    simulated_mesh: SimulatedMesh, registry: Registry
) -> None:
    place = placing(simulated_mesh(4))
    registry(CORRECTIONS)
    with pytest.raises(RefusedCallError, match=r"index_add_.*pending reduction"):
        index_add(Partial("avg"), Partial("avg"))(place)


def test_ranks_do_not_share_an_integer_that_they_do_not_divide(
    simulated_mesh: SimulatedMesh, registry: Registry
) -> None:
    mesh = simulated_mesh(4)
    registry(CORRECTIONS)
    x = DTensor.from_local(torch.ones(3, dtype=torch.int64), mesh, [Partial()], run_check=False)
    assert_equal([x.fill_(8)], [torch.full((3,), 8)])
    with pytest.raises(RefusedCallError, match="4 ranks cannot share an integer"):
        x.fill_(7)


def whole(tensor: torch.Tensor, _: Any) -> torch.Tensor:
    return tensor.clone()


def placing(mesh: DeviceMesh) -> Place:
    """Place whole tensors without communication."""

    def place(tensor: torch.Tensor, placement: Any) -> Any:
        if not isinstance(placement, Partial):
            return distribute_tensor(tensor, mesh, [placement], src_data_rank=None)
        parts = distribute_tensor(
            parts_of(tensor, placement.reduce_op), mesh, [Shard(0)], src_data_rank=None
        )
        return DTensor.from_local(parts.to_local().squeeze(0), mesh, [placement], run_check=False)

    return place


def parts_of(tensor: torch.Tensor, reduce_op: str) -> torch.Tensor:
    """Make what four ranks hold of a pending reduction; each holds a quarter of the elements."""
    owner = torch.arange(tensor.numel()).reshape(tensor.shape) % 4
    rest = {"sum": 0 * tensor, "avg": 0 * tensor, "max": tensor - 2, "min": tensor + 2}[reduce_op]
    held = tensor * 4 if reduce_op == "avg" else tensor
    return torch.stack([torch.where(owner == rank, held, rest) for rank in range(4)])


def is_right(program: Program, place: Place) -> bool:
    try:
        assert_equal(program(place), program(whole))
    except Exception:  # wrong numbers, or what one rank raises
        return False
    return True


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for value, truth in zip(found, expected, strict=True):
        whole_value, (single, *_) = value.full_tensor(), on_ranks(truth)
        for local in on_ranks(whole_value):
            torch.testing.assert_close(local, single)


def on_ranks(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    """List what the simulated ranks hold."""
    locals_: dict[int, torch.Tensor] = getattr(tensor, "_local_tensors", {0: tensor})
    return locals_.values()
