"""A write into a view whose input had to move reaches the tensor that it is a view of.

Each program runs on a plain tensor and on a DTensor, and must leave the same values. torch alone
loses what these programs write (docs/design-notes.md).
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.errors import MovedViewError

Program = Callable[[Tensor], Any]

S0, S1, R = Shard(0), Shard(1), Replicate()


def repeated(x: Tensor) -> None:
    for _ in range(3):
        x[0:2].mul_(2.0)
        x[0:2].add_(1.0)


def each_row(x: Tensor) -> None:
    for row in range(x.shape[0]):
        x[row].add_(float(row))


def assigned(x: Tensor) -> None:
    x[0:1] = 0
    x[1] = 3
    x[2:3] = x[4:5] * 2
    x[3] += 1


def initialized(x: Tensor) -> None:
    torch.nn.init.zeros_(x[:2])
    torch.nn.init.constant_(x[3:], 2.0)


def views_of_views(x: Tensor) -> None:
    x[0:4].t()[1:3].unsqueeze(0).mul_(7.0)
    x[0:2].detach().squeeze().add_(1.0)
    x[3:4].squeeze_().mul_(2.0)


def two_copies_in_turn(x: Tensor) -> None:
    a, b = x[0:2], x[1:3]
    a.zero_()
    b.add_(1.0)
    a.add_(5.0)
    b.mul_(2.0)


def after_the_tensor_changed(x: Tensor) -> None:
    view = x[0:2]
    x.add_(1.0)
    view.mul_(2.0)


def after_reading(x: Tensor) -> None:
    view = x[0:2]
    (view + 1).sum()
    view.add_(1.0)
    view.add_((view * 2).sum())


def pieces_of_one_call(x: Tensor) -> None:
    a, b = x.split([2, x.shape[0] - 2])
    a.mul_(2.0)
    b.zero_()
    for piece in x.chunk(2, 1):
        piece.add_(1.0)


def lists(x: Tensor) -> None:
    torch._foreach_mul_([x[0:2], x[3:5]], 2.0)
    torch._foreach_mul_(list(x.chunk(4)), 3.0)


def given_as_out(x: Tensor) -> None:
    torch.mul(x[0:2], 3.0, out=x[2:4])


def both_dims(x: Tensor) -> None:
    x[0:4][:, 1].add_(1.0)
    x.diagonal().fill_(9.0)
    x.t()[:, 0:2].zero_()


def cache_of_keys(x: Tensor) -> Tensor:
    cache = torch.zeros_like(x).unsqueeze(0).clone()
    for step in range(4):
        cache[:, step : step + 1] = x[step : step + 1].unsqueeze(0)
        cache[:, :, step : step + 1].mul_(2.0)
    return cache


def leaf_without_grad(x: Tensor) -> Any:
    weight = x.detach().clone().requires_grad_(True)
    with torch.no_grad():
        weight[0:1] = 0
        weight[2:3].mul_(2.0)
    (weight * weight).sum().backward()
    return weight.grad


def gradient_of_a_write(x: Tensor) -> Any:
    weight = x.detach().clone().requires_grad_(True)
    y = weight * 2
    y[0:2].mul_(weight[2:4])
    (y * y).sum().backward()
    return weight.grad


def in_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = x.clone()
        view = y[1:3]
        y[0:2].mul_(2.0)
        view.add_(1.0)
        y.mul_(2.0)
        view.add_(1.0)
        return y


def other_elements(x: Tensor) -> Tensor:
    z = torch.complex(x, x * 2)
    torch.view_as_real(z[0:2]).mul_(2.0)
    return torch.view_as_real(z)


def random_numbers(x: Tensor) -> None:
    x[0:2].uniform_(1.0, 1.0)


PROGRAMS: tuple[Program, ...] = (
    repeated,
    each_row,
    assigned,
    initialized,
    views_of_views,
    two_copies_in_turn,
    after_the_tensor_changed,
    after_reading,
    pieces_of_one_call,
    lists,
    given_as_out,
    both_dims,
    cache_of_keys,
    leaf_without_grad,
    gradient_of_a_write,
    in_inference_mode,
    other_elements,
    random_numbers,
)
ON_RANKS = (assigned, two_copies_in_turn, lists, gradient_of_a_write)
PLACED = (
    ((4,), (S0,), 8),
    ((4,), (S0,), 5),
    ((2, 2), (S0, S1), 8),
)


def outcome(program: Program, x: Tensor) -> Tensor:
    result = program(x)
    tensor = x if result is None else result
    whole: Any = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.reconcile() if hasattr(whole, "reconcile") else whole


def rows(size: int) -> Tensor:
    return torch.arange(size * 8.0).view(size, 8) / 8


@pytest.fixture
def installed(repository_plugins: None) -> Iterator[None]:
    with dr.install():
        yield


@pytest.mark.filterwarnings("ignore:DTensor random operators may not")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize(("shape", "placements", "size"), PLACED, ids=str)
def test_a_write_into_a_moved_view_reaches_the_tensor(
    installed: None,
    local_mesh: Any,
    program: Program,
    shape: tuple[int, ...],
    placements: Any,
    size: int,
) -> None:
    mesh = local_mesh(*shape)
    x = distribute_tensor(rows(size), mesh, placements)
    torch.testing.assert_close(outcome(program, x), outcome(program, rows(size)))


def on_a_rank(rank: int) -> list[str]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2,))
    # torch's C++ keeps some of its dispatcher's methods from its first call on.
    distribute_tensor(rows(8), mesh, [S0])[0:2].zero_()
    wrong = []
    with dr.install():
        for program in ON_RANKS:
            x = distribute_tensor(rows(5), mesh, [S0])
            if not torch.allclose(outcome(program, x), outcome(program, rows(5))):
                wrong.append(program.__name__)
    return wrong


def test_real_ranks_lose_no_write(run_ranks: Any) -> None:
    assert run_ranks(on_a_rank, ranks=2) == [[], []]


@pytest.fixture
def fake_mesh() -> Iterator[Any]:
    import torch.distributed as dist

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def test_a_write_moves_no_more_than_the_view_did(installed: None, fake_mesh: Any) -> None:
    x = distribute_tensor(rows(8), fake_mesh, [S0])
    with CommDebugMode() as traffic:
        view = x[0:2]
        view.relu_()
        view.mul_(2.0)
        view.t().add_(1.0)
    assert traffic.get_total_counts() == 1


def test_a_view_that_moves_nothing_is_an_ordinary_tensor(installed: None, fake_mesh: Any) -> None:
    x = distribute_tensor(rows(8), fake_mesh, [S0])
    assert x[:, 0:2]._spec == distribute_tensor(rows(8)[:, 0:2], fake_mesh, [S0])._spec


def test_reading_a_moved_view_is_decided_once(
    installed: None, fake_mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = DTensor._op_dispatcher
    path = "_propagate_op_sharding_dispatch_slow_path"
    decide = getattr(dispatcher, path)
    asked: list[str] = []

    def note(op: Any, *rest: Any) -> Any:
        asked.append(str(op))
        return decide(op, *rest)

    x = distribute_tensor(rows(8), fake_mesh, [S0])
    monkeypatch.setitem(dispatcher.__dict__, path, note)
    for _ in range(3):
        x[0:2].t() + 1
    assert asked == ["aten.slice.Tensor", "aten.t.default", "aten.add.Tensor"]


def test_what_was_moved_is_freed_with_the_last_view(installed: None, fake_mesh: Any) -> None:
    import weakref

    x = distribute_tensor(rows(8), fake_mesh, [S0])
    source = weakref.ref(x._local_tensor)
    view = x[0:2].t()
    del x
    assert source() is not None
    del view
    assert source() is None


@torch.library.custom_op("moved_views::double_second", mutates_args=("second",))
def double_second(first: Tensor, second: Tensor) -> None:
    second.mul_(first)


def test_an_op_that_the_host_runs_writes_to_the_tensor_too(
    installed: None, local_mesh: Any
) -> None:
    rule = dr.register_single_dim_strategy("moved_views.double_second.default")
    x = distribute_tensor(rows(8), local_mesh(4), [S0])
    with rule(lambda op, args, kwargs: [[S0, S0]]):
        double_second(x[0:2], x[2:4])
    expected = rows(8)
    double_second(expected[0:2], expected[2:4])
    torch.testing.assert_close(outcome(lambda x: None, x), expected)


def test_a_copy_of_a_moved_view_is_a_tensor_of_its_own(installed: None, fake_mesh: Any) -> None:
    x = distribute_tensor(rows(8), fake_mesh, [S0])
    view = x[0:2]
    file = io.BytesIO()
    torch.save(view, file)
    file.seek(0)
    for other in (copy.deepcopy(view), torch.load(file, weights_only=False)):
        other.zero_()
        assert type(copy.copy(other._spec)) is type(x._spec)
    torch.testing.assert_close(x._local_tensor, rows(8)[0:2])


def test_a_write_that_has_no_place_in_a_pending_reduction_is_refused(
    installed: None, fake_mesh: Any
) -> None:
    whole = dr.register_single_dim_strategy("aten.select.int")(lambda op, args, kwargs: [[R, R]])
    x = DTensor.from_local(torch.ones(4, 2, dtype=torch.int64), fake_mesh, [Partial()])
    with whole:
        view = x[0]
        with pytest.raises(MovedViewError, match=r"select\.int could not view \(4, 2\)@\(P"):
            view.zero_()
