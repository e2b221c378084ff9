"""Rules without end and malformed rows are errors; nobody waits for a plugin that is loading."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _MaskPartial

import dtensor_registry as dr
from dtensor_registry.discovery import load
from dtensor_registry.errors import BrokenPluginsError

S0 = Shard(0)


class Endless(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield [S0, S0]


class Raising(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise KeyError("no rows today")


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


ITSELF: list[Any] = []
ITSELF.append(ITSELF)

WRONG: dict[str, tuple[Any, str]] = {
    "no placement for a tensor": ([[None, S0]], "output 0 is a tensor in this call"),
    "a mask that nobody makes": (
        [[_MaskPartial(offset_shape=torch.Size([8, 4]), offset_dim=0), S0]],
        "whose mask is made when an input is moved",
    ),
    "an output dim that is not there": ([[Shard(2), S0]], "output 0 has S(2) in a row, but is a 2"),
    "two million rows": (lambda: [[S0, S0]] * 2_000_000, "more than 100000 rows, which is setting"),
    "rows without end": (Endless([[S0, S0]]), "more than 100000 rows"),
    "a row without end": ([Endless([S0])] * 60_000, "the row has 1 entries"),
    "rows that raise": (Raising([1]), "it raised KeyError: 'no rows today'"),
    "bytes": (b"rows", "it returned a bytes"),
    "what cannot be shown": ([[Unprintable(), S0]], "reading a row raised ValueError"),
    "rows that hold themselves": (ITSELF, "the row has 1 entries"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_rows_that_cannot_be_right_are_an_error_of_the_rule_in_a_short_time(
    kind: str, local_mesh: Any
) -> None:
    returned, problem = WRONG[kind]
    mesh = local_mesh(4)
    build = returned if callable(returned) else lambda: returned
    undo = dr.register_single_dim_strategy("aten.relu.default")(lambda op, args, kwargs: build())
    try:
        x = distribute_tensor(torch.ones(8, 4), mesh, [S0])
        began = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            torch.relu(x)
        assert time.monotonic() - began < 30
        assert "the sharding rule for aten.relu.default is wrong" in str(caught.value)
        assert problem in str(caught.value)
        assert len(str(caught.value)) < 5000
    finally:
        undo.undo()
    assert torch.relu(x).placements == (S0,)


def test_the_bound_of_rows_is_a_setting(local_mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = local_mesh(4)
    monkeypatch.setenv("DTENSOR_REGISTRY_MAX_ROWS", "2")
    rows = [[S0, S0]] * 3
    undo = dr.register_single_dim_strategy("aten.relu.default")(lambda op, args, kwargs: rows)
    try:
        with pytest.raises(RuntimeError, match="it returned more than 2 rows"):
            torch.relu(distribute_tensor(torch.ones(8, 4), mesh, [Replicate()]))
    finally:
        undo.undo()


def test_rules_put_together_are_bounded_too(local_mesh: Any) -> None:
    mesh = local_mesh(4)
    rule = dr.rows(lambda op, args, kwargs: Endless())
    undo = dr.register_single_dim_strategy("aten.relu.default")(rule)
    try:
        x = distribute_tensor(torch.ones(8, 4), mesh, [S0])
        assert torch.relu(x).placements == (S0,)  # it is one row, given without end
    finally:
        undo.undo()


STARTS_A_THREAD = """\
import threading

caught = []

def other():
    import dtensor_registry as dr
    try:
        {act}
    except Exception as error:
        caught.append(error)

thread = threading.Thread(target=other, daemon=True)
thread.start()
thread.join(60)
if thread.is_alive():
    raise TimeoutError("the thread still waits")
raise caught[0]
"""


@pytest.mark.parametrize(
    "act", ["dr.install()", "dr.register_single_dim_strategy('aten.neg.default')(lambda *a: [])"]
)
def test_a_plugin_whose_module_installs_from_a_thread_is_refused_and_does_not_hang(
    act: str, fake_distribution: Any
) -> None:
    fake_distribution("thread-rules", STARTS_A_THREAD.format(act=act))
    began = time.monotonic()
    with pytest.raises(BrokenPluginsError) as caught:
        dr.install(allowed=["thread-rules"])
    assert time.monotonic() - began < 30
    assert "plugin 'thread' is being loaded by another thread" in str(caught.value)


def test_after_a_plugin_is_loaded_other_threads_may_install(fake_distribution: Any) -> None:
    fake_distribution(
        "fine-rules",
        "from dtensor_registry import hookimpl\n@hookimpl\n"
        "def provide_single_dim_strategy():\n    return []\n",
    )
    found: list[Any] = []

    def install() -> None:
        with dr.install(allowed=["fine-rules"]) as installation:
            found.append(installation.discovery.plugins)

    with dr.install(allowed=["fine-rules"]):
        thread = threading.Thread(target=install)
        thread.start()
        thread.join(60)
    assert len(found) == 1
    assert load._loading == {}
