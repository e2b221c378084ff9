"""A change of rules is whole or has not happened, wherever it is interrupted."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, _sharding_prop

import dtensor_registry as dr
from dtensor_registry.torch_patch import interrupts, override_stack, table_patcher
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import LEDGER
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator

RELU, NEG = "aten.relu.default", "aten.neg.default"
FILES = {module.__file__ for module in (override_stack, table_patcher)} | {
    sys.modules[f"dtensor_registry.torch_patch.{name}"].__file__
    for name in ("compile_caches", "decompositions", "cache_invalidation")
}
PLUGIN = """\
from dtensor_registry import SingleDimStrategy, hookimpl

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy(["aten.relu.default", "aten.neg.default"], lambda op, a, k: [])]
"""
TABLES = (
    *table_patcher.RULE_TABLES,
    "op_to_schema_info",
    "op_to_schema_info_for_single_dim_strategy",
)


def state() -> dict[str, Any]:
    """Everything in torch that the host changes, by identity."""
    known = {
        table: {op: id(value) for op, value in getattr(propagator(), table).items()}
        for table in TABLES
    }
    return {
        **known,
        "handlers": dict(dispatcher()._custom_op_handlers),
        "dispatcher": sorted(vars(dispatcher())),
        "propagator": sorted(vars(propagator())),
        "decompositions": sorted(vars(propagator().decomp_strategy)),
        "expansion": _sharding_prop._expand_single_dim_strategy_to_mesh,
        "tag": torch.compiler.config.cache_key_tag,
        "layers": LOAN.layers,
        "on loan": len(LEDGER),
    }


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line that is run in the files of the loan."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def interrupted(action: Callable[[], Any], line: int) -> bool:
    """Run something; say whether it was interrupted before it came to its end."""
    tracer = sys.gettrace()
    sys.settrace(Interrupter(line))
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracer)
    return False


def lines_until_done(action: Callable[[], Any], undo: Callable[[], Any]) -> Iterator[int]:
    """Interrupt an action at each of its lines, the first first, until it gets through."""
    line = 1
    while interrupted(action, line):
        yield line
        line += 1
    undo()


def installed() -> Any:
    return dr.install(allowed=["acme-rules"])


@pytest.fixture(autouse=True)
def acme(fake_distribution: Any) -> None:
    fake_distribution("acme-rules", PLUGIN)


def test_an_installation_that_is_interrupted_at_any_line_leaves_no_trace() -> None:
    installation = installed()
    installation.uninstall()
    before = state()
    for line in lines_until_done(installation.hold, installation.uninstall):
        assert state() == before, f"interrupted at line {line} of the loan"
    assert line > 60
    assert state() == before


def test_a_rule_that_is_interrupted_at_any_line_leaves_those_below_as_they_were() -> None:
    held: list[Any] = []

    def register() -> None:
        held.append(dr.register_single_dim_strategy(RELU)(dr.pointwise()))

    with installed():
        before = state()
        for line in lines_until_done(register, lambda: held[0].undo()):
            assert state() == before, f"interrupted at line {line} of the loan"
        assert line > 40
        assert state() == before


def test_an_undo_that_is_interrupted_at_any_line_is_done_or_can_be_done_again() -> None:
    pristine = state()
    line = 0
    done = False
    while not done:
        line += 1
        registration = dr.register_single_dim_strategy([RELU, NEG])(dr.pointwise())
        during = state()
        done = not interrupted(registration.undo, line)
        assert state() in (during, pristine), f"interrupted at line {line} of the loan"
        registration.undo()
        assert state() == pristine
    assert line > 40


@pytest.fixture
def heeded() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt, also where a shell started the tests without it."""
    theirs = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, theirs)


@pytest.fixture
def ctrl_c(heeded: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the next write to torch's tables send SIGINT to this process."""
    store = table_patcher.store

    def arm() -> None:
        armed = [True]

        def and_interrupt(cell: Any, value: Any) -> None:
            if armed.pop() if armed else False:
                signal.raise_signal(signal.SIGINT)
            store(cell, value)

        monkeypatch.setattr(table_patcher, "store", and_interrupt)

    return arm


def test_ctrl_c_during_an_installation_is_raised_after_it_is_undone(
    ctrl_c: Callable[[], None],
) -> None:
    before = state()
    ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        installed()
    assert state() == before
    with installed() as installation:
        assert installation.active
    assert state() == before


def test_ctrl_c_during_an_undo_is_raised_after_it_is_done(ctrl_c: Callable[[], None]) -> None:
    before = state()
    registration = dr.register_single_dim_strategy(RELU)(dr.pointwise())
    ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        registration.undo()
    assert state() == before


def test_a_second_ctrl_c_does_not_cut_the_undoing_short(
    heeded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = table_patcher.store

    def impatient(cell: Any, value: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        store(cell, value)

    before = state()
    with monkeypatch.context() as patch:
        patch.setattr(table_patcher, "store", impatient)
        with pytest.raises(KeyboardInterrupt):
            installed()
    assert state() == before


def test_the_users_own_handler_of_signals_is_there_again_and_was_called() -> None:
    calls: list[int] = []
    theirs = signal.signal(signal.SIGINT, lambda signum, frame: calls.append(signum))
    try:
        own = signal.getsignal(signal.SIGINT)
        with interrupts.Interrupts() as outer:
            with interrupts.Interrupts() as inner:
                signal.raise_signal(signal.SIGINT)
                assert calls == []
            assert inner.came
        assert outer.came
        assert calls == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, theirs)


def test_rules_can_change_in_a_thread_that_gets_no_signals() -> None:
    before = state()
    thread = threading.Thread(target=lambda: installed().uninstall())
    thread.start()
    thread.join()
    assert state() == before


def test_threads_that_install_at_once_share_one_installation_which_ends_with_the_last() -> None:
    before = state()
    start, held = threading.Barrier(4), []

    def install() -> None:
        start.wait()
        held.append(installed())

    threads = [threading.Thread(target=install) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(installation) for installation in held}) == 1
    assert len(LOAN.layers) == 1
    for installation in held:
        assert installation.active
        installation.uninstall()
    assert state() == before


def test_tables_are_torchs_own_dicts_throughout() -> None:
    dicts = [id(getattr(propagator(), table)) for table in TABLES]
    with installed():
        assert [id(getattr(propagator(), table)) for table in TABLES] == dicts
    assert DTensor._op_dispatcher is dispatcher()
