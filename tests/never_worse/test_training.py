"""Checkpoints and losses as programs have them: what bare torch does right stays right."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from packaging.version import Version
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.distributed.tensor.parallel.loss import _disable_custom_loss_ops
from torch.nn import functional

import dtensor_registry as dr
from tests.conftest import RunRanks
from tests.never_worse.comparison import Comparison, Program

RANKS = 2
CLONE_KEEPS_SUMS = Version(torch.__version__).release >= (2, 14)


def saved_and_loaded(rank: int) -> dict[str, Any]:
    """Train for three steps, save, go on for one, load, and make that one again."""
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(0)
    net = nn.Linear(4, 2, bias=False)
    net.weight = nn.Parameter(distribute_tensor(net.weight.detach(), mesh, [Replicate()]))
    x = distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)])
    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder)
    saved = Path(folder[0]) / "saved"
    with dr.install():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step() -> None:
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()

        def states() -> dict[str, Any]:
            weights, state = get_state_dict(net, optimizer)
            return {"model": weights, "optimizer": state}

        for _ in range(3):
            step()
        buffer = optimizer.state[net.weight]["momentum_buffer"]
        if any(placement.is_partial() for placement in buffer.placements):
            return {"buffer": str(buffer.placements)}
        dcp.save(states(), checkpoint_id=saved)
        step()
        after = net.weight.detach().full_tensor().tolist()
        read = states()
        dcp.load(read, checkpoint_id=saved)
        set_state_dict(
            net, optimizer, model_state_dict=read["model"], optim_state_dict=read["optimizer"]
        )
        step()
    return {
        "buffer": str(buffer.placements),
        "after": after,
        "again": net.weight.detach().full_tensor().tolist(),
    }


def test_the_momentum_of_a_whole_weight_is_saved_and_loaded(run_ranks: RunRanks) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 2, bias=False)
    x = torch.randn(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
    for found in run_ranks(saved_and_loaded, RANKS):
        if CLONE_KEEPS_SUMS:  # so does the momentum, and bare torch refuses to save it, too
            assert found == {"buffer": str((Partial(),))}
            continue
        assert found["buffer"] == str((Replicate(),))
        torch.testing.assert_close(torch.tensor(found["after"]), net.weight.detach())
        assert found["again"] == found["after"]


@contextmanager
def parallel_loss() -> Iterator[None]:
    """torch's `loss_parallel()`, which after an exception leaves its handlers in force."""
    try:
        with loss_parallel():
            yield
    except BaseException:
        _disable_custom_loss_ops()
        raise


def test_a_smoothed_loss_on_cut_classes_is_refused_or_right_with_its_gradient(
    compare: Callable[..., Comparison],
) -> None:
    def smoothed(x: Any, y: Any) -> Any:
        leaf = x.detach().requires_grad_()
        if isinstance(leaf, DTensor):
            with parallel_loss():
                loss = functional.cross_entropy(leaf, y, label_smoothing=0.5)
                loss.backward()
        else:
            loss = functional.cross_entropy(leaf, y, label_smoothing=0.5)
            loss.backward()
        return loss.detach(), leaf.grad

    programs: dict[str, Program] = {"smoothed": smoothed}
    x, y = torch.randn(2, 4), torch.tensor([0, 3])
    compare(2).assert_none_worse(programs, (x, "S(1)"), (y, "R"))


def test_a_scatter_with_a_shorter_index_is_right_with_its_gradients(
    compare: Callable[..., Comparison],
) -> None:
    def scattered(x: Any, index: Any, source: Any) -> Any:
        x, source = x.detach().requires_grad_(), source.detach().requires_grad_()
        out = x.scatter_reduce(1, index, source, "sum")
        (out * out).sum().backward()
        return out.detach(), x.grad, source.grad

    x, source = torch.randn(10, 5), torch.randn(5, 5)
    index = torch.randint(5, (5, 5))
    programs: dict[str, Program] = {"scatter_reduce": scattered}
    found = compare(2).assert_none_worse(programs, (x, "R"), (index, "S(0)"), (source, "S(0)"))
    assert found["scatter_reduce"].error == ""


def test_a_tensor_without_elements_is_viewed_and_reduced(
    compare: Callable[..., Comparison],
) -> None:
    programs: dict[str, Program] = {
        "unflatten": lambda x: x.unflatten(1, (0, 2)),
        "flatten": lambda x: x.flatten(),
        "sum": lambda x: x.sum(1),
    }
    found = compare(4).outcomes(programs, (torch.zeros(4, 0), "S(1)"))  # bare torch never returns
    assert {name: outcome.error for name, outcome in found.items() if outcome.error} == {}
