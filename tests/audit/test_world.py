"""A program runs as rank 0 of a world that is not there, and the process is as before."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from dtensor_registry.auditing.record import Audit
from dtensor_registry.errors import InstallError
from dtensor_registry.torch_fake.tensors import MAX_COMPUTED, fake_tensors
from dtensor_registry.torch_fake.world import fake_world
from dtensor_registry.torch_patch.watch import Watch


@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:gloo,cuda:nccl", None])
def test_whatever_backend_the_program_names_the_group_is_fake(backend: str | None) -> None:
    with fake_world(8):
        dist.init_process_group(backend)
        assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("fake", 0, 8)
        assert dist.get_backend(dist.new_group([0, 1], backend=backend)) == "fake"


@pytest.mark.parametrize(
    "arguments",
    [
        {"init_method": "tcp://10.255.255.1:1", "rank": 0, "world_size": 4},
        {"init_method": "file:///nowhere/at/all", "rank": 0, "world_size": 4},
        {"device_id": torch.device("cuda", 0)},
        {},
    ],
    ids=str,
)
def test_nothing_is_met_wherever_the_program_wants_to_meet(arguments: Any) -> None:
    with fake_world(4):
        dist.init_process_group("gloo", **arguments)
        assert dist.get_world_size() == 4


def test_a_store_of_the_programs_own_is_one_without_a_network() -> None:
    with fake_world(4):
        store = dist.TCPStore("10.255.255.1", 1, 4, True)
        dist.init_process_group("gloo", store=store, rank=0, world_size=4)
        store.set("key", "value")
        assert store.get("key") == b"value"


def test_a_mesh_makes_the_group_where_the_program_makes_none() -> None:
    with fake_world(8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        assert (dist.get_backend(), mesh["tp"].size()) == ("fake", 4)


def test_the_environment_is_torchruns() -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    with fake_world(8):
        assert [os.environ[name] for name in names] == ["0", "0", "8", "8", "127.0.0.1", "29500"]


def test_objects_come_from_ranks_that_are_like_this_one() -> None:
    with fake_world(3):
        dist.init_process_group("gloo")
        gathered: list[Any] = [None] * 3
        dist.all_gather_object(gathered, {"a": 1})
        sent = ["x"]
        dist.broadcast_object_list(sent)
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, ["first", "second", "third"])
    assert (gathered, sent, mine) == ([{"a": 1}] * 3, ["x"], ["first"])


def test_of_processes_that_the_program_would_start_the_first_runs_here() -> None:
    ran = []
    with fake_world(2):
        torch.multiprocessing.spawn(lambda rank, word: ran.append((rank, word)), ("x",), nprocs=2)
        with pytest.raises(InstallError, match="Audit what one rank runs"):
            torch.multiprocessing.spawn(print, nprocs=2, join=False)
    assert ran == [(0, "x")]


def state() -> list[Any]:
    """What a program and torch may change in a process."""
    return [
        dict(os.environ),
        list(sys.argv),
        list(sys.path),
        sys.excepthook,
        torch.get_default_dtype(),
        torch.get_rng_state().tolist(),
        dist.is_initialized(),
        *(getattr(dist, name) for name in ("init_process_group", "TCPStore", "all_gather_object")),
        *(vars(distributed_c10d)[n] for n in ("_new_process_group_helper", "rendezvous")),
        torch.cuda.device_count,
        torch.multiprocessing.spawn,
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_all_is_as_before_also_when_the_block_fails(fails: bool) -> None:
    before = state()
    with pytest.raises(ZeroDivisionError) if fails else fake_world(1), fake_world(4):
        dist.init_process_group("nccl")
        os.environ["RANK"] = "3"
        torch.set_default_dtype(torch.float64)
        torch.rand(3)
        if fails:
            raise ZeroDivisionError
    assert state() == before


def test_a_process_in_a_group_is_refused() -> None:
    with fake_world(2):
        dist.init_process_group("gloo")
        with pytest.raises(InstallError, match="this process has one"), fake_world(2):
            pass


def never() -> bool:
    return False


@pytest.fixture
def reads() -> list[int]:
    return []


def test_small_known_values_are_computed_and_large_ones_are_not(reads: list[int]) -> None:
    with fake_tensors(never, lambda: reads.append(1)):
        assert torch.arange(5).tolist() == [0, 1, 2, 3, 4]
        assert (torch.arange(5) > 2).nonzero().flatten().tolist() == [3, 4]
        large = torch.ones(MAX_COMPUTED)
        assert type(large) is not torch.Tensor
        small = torch.ones(3)
        assert type(small) is torch.Tensor
        assert small.add_(1).sum().item() == 6
    assert reads == []


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.float32, 1.0), (torch.int64, 1), (torch.bool, False)]
)
def test_what_is_read_of_a_fake_tensor_is_made_up_and_counted(
    dtype: torch.dtype, value: Any, reads: list[int]
) -> None:
    with fake_tensors(never, lambda: reads.append(1)):
        large = torch.zeros(MAX_COMPUTED + 1, dtype=dtype)
        assert large[0].item() == value
        assert large[:2].tolist() == [value, value]
    assert len(reads) == 3


def written_in_place(known: torch.Tensor, unknown: torch.Tensor) -> None:
    known += unknown


def written_at_an_index(known: torch.Tensor, unknown: torch.Tensor) -> None:
    known[1] = unknown[0]


def written_through_a_view(known: torch.Tensor, unknown: torch.Tensor) -> None:
    known[:1].copy_(unknown[:1])


def written_in_a_list(known: torch.Tensor, unknown: torch.Tensor) -> None:
    torch._foreach_add_([known], [unknown])


def written_by_keyword(known: torch.Tensor, unknown: torch.Tensor) -> None:
    torch.add(unknown, 1, out=known)


def written_from_one_overwritten(known: torch.Tensor, unknown: torch.Tensor) -> None:
    other = torch.zeros(2)
    other += unknown
    known.copy_(other)


def reduced(known: torch.Tensor, unknown: torch.Tensor) -> None:
    dist.all_reduce(known)


def received(known: torch.Tensor, unknown: torch.Tensor) -> None:
    dist.broadcast(known, src=1)


def broadcast_after_a_write(known: torch.Tensor, unknown: torch.Tensor) -> None:
    known += unknown
    dist.broadcast(known, src=0)


def gathered(known: torch.Tensor, unknown: torch.Tensor) -> None:
    dist.all_gather([torch.zeros(2), known], torch.zeros(2))


def local_of_a_dtensor(known: torch.Tensor, unknown: torch.Tensor) -> None:
    DTensor.from_local(known, init_device_mesh("cpu", (2,)), [Shard(0)]).add_(1)


@pytest.mark.parametrize(
    "write",
    [
        written_in_place,
        written_at_an_index,
        written_through_a_view,
        written_in_a_list,
        written_by_keyword,
        written_from_one_overwritten,
        reduced,
        received,
        broadcast_after_a_write,
        gathered,
        local_of_a_dtensor,
    ],
)
def test_a_known_tensor_that_is_written_to_from_elsewhere_is_known_no_more(
    write: Any, reads: list[int]
) -> None:
    watch = Watch(Audit().enter)
    with (
        fake_world(2),
        fake_tensors(lambda: watch.is_inside_op, lambda: reads.append(1)),
        watch,
    ):
        dist.init_process_group("gloo")
        known, unknown = torch.zeros(2), torch.zeros(MAX_COMPUTED)[:2]
        write(known, unknown)
        assert (known[1].item(), known.tolist()) == (1.0, [1.0, 1.0])
        with pytest.raises(RuntimeError, match="numpy"):
            known.numpy()
    assert len(reads) == 3


def test_a_known_tensor_that_this_rank_sends_stays_known(reads: list[int]) -> None:
    with fake_world(2), fake_tensors(never, lambda: reads.append(1)):
        dist.init_process_group("gloo")
        known, unknown = torch.zeros(2), torch.zeros(MAX_COMPUTED)[:2]
        dist.broadcast(known, src=0)
        dist.send(known, dst=1)
        dist.barrier()
        unknown += known
        assert known.tolist() == [0.0, 0.0]
        assert known.numpy().sum() == 0
    assert reads == []


def test_nothing_is_allocated_for_what_no_memory_would_hold(reads: list[int]) -> None:
    with fake_world(1024), fake_tensors(never, lambda: reads.append(1)):
        mesh = init_device_mesh("cpu", (1024,))
        huge = torch.empty(2**20, 2**20)  # 4 TiB
        x = distribute_tensor(huge, mesh, [Shard(0)])
        assert isinstance(x, DTensor)
        assert (x @ x).shape == huge.shape
        dist.all_reduce(huge)


def test_a_program_for_gpus_runs_where_there_is_none(reads: list[int]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with fake_world(8), fake_tensors(never, lambda: reads.append(1)):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
        mesh = init_device_mesh("cuda", (2, 4))
        with torch.device("cuda"):
            layer = torch.nn.Linear(8, 8)
        x = distribute_tensor(torch.ones(8, 8).cuda().to("cuda:0"), mesh, [Shard(0), Shard(1)])
        assert torch.nn.functional.dropout(x).shape == layer.to("cuda").weight.shape
        torch.cuda.synchronize()
