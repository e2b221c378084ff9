"""Any sequence of changes and calls, in two threads: every answer is that of a simple model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.installation import installer
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import HANDLERS, LEDGER
from dtensor_registry.torch_runtime.compat import RULE_TABLES
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator

LONG = bool(os.environ.get("DTENSOR_REGISTRY_LONG"))
EXAMPLES, STEPS = (200, 50) if LONG else (15, 40)


FAILING: set[str] = set()
"""What of `shift` raises now: its kernel, its fake kernel."""


@torch.library.custom_op("fuzz_machine::shift", mutates_args=())
def shift(x: Tensor) -> Tensor:
    if "kernel" in FAILING:
        raise ZeroDivisionError
    return x + 1


@shift.register_fake
def _(x: Tensor) -> Tensor:
    if "fake kernel" in FAILING:
        raise ZeroDivisionError
    return torch.empty_like(x)


CALLS = {"relu": torch.relu, "neg": torch.neg, "shift": shift}
NAMES = {"relu": "aten.relu.default", "neg": "aten.neg.default", "shift": str(shift._opoverload)}
TORCHS = {"relu": "keep", "neg": "keep"}
RULES = {
    "keep": lambda op, args, kwargs: [[dr.ShardingPlaceholder(0)] * 2],
    "gather": lambda op, args, kwargs: [],
}
PLUGINS = {
    "alpha": {"relu": "gather", "shift": "keep"},
    "beta": {"neg": "gather", "shift": "gather"},
    "empty": {},
}
SOURCE = """\
from dtensor_registry import FallbackStrategy, ShardingPlaceholder, SingleDimStrategy, hookimpl

RULES = {{
    "keep": lambda op, args, kwargs: [[ShardingPlaceholder(0)] * 2],
    "gather": lambda op, args, kwargs: [],
}}

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy(op, RULES[rule]) for op, rule in {claims!r}]

@hookimpl
def provide_fallback():
    return [FallbackStrategy("gather", RULES["gather"])] if {name!r} == "empty" else []
"""


@dataclass
class Held:
    """What is in force by the model: a layer, and how to end it."""

    height: int
    answers: dict[str, str]
    end: Any
    falls_back: bool = False
    holders: int = 1
    key: Any = None


class Machine(RuleBasedStateMachine):
    """The registry beside a list of layers."""

    def __init__(self, x: Any, thread: ThreadPoolExecutor) -> None:
        super().__init__()
        self.x, self.thread = x, thread
        self.layers: list[Held] = []
        self.before = tables()

    def expected(self, op: str) -> str:
        # The latest installation alone decides.
        covered = [layer for layer in self.layers if layer.height == 0][:-1]
        deciding = [layer for layer in self.layers if layer not in covered]
        for layer in reversed(deciding):
            if op in layer.answers:
                return layer.answers[op]
        falls_back = any(layer.falls_back for layer in deciding)
        return TORCHS.get(op, "gather" if falls_back else "error")

    def put(self, layer: Held) -> None:
        above = sum(other.height <= layer.height for other in self.layers)
        self.layers.insert(above, layer)

    @rule(name=st.sampled_from(sorted(PLUGINS)), adopts=st.booleans())
    def install(self, name: str, adopts: bool) -> None:
        mode = "silent" if name == "empty" else "off"
        installation = dr.install(
            allowed=[f"{name}-rules"], torch_rules=adopts, fallback={"mode": mode}
        )
        for layer in self.layers:
            if layer.key is installation:
                layer.holders += 1
                return
        end, falls_back = installation.uninstall, name == "empty"
        self.put(Held(0, PLUGINS[name], end, falls_back, key=installation))

    @rule(op=st.sampled_from(sorted(CALLS)), answer=st.sampled_from(sorted(RULES)))
    def register(self, op: str, answer: str) -> None:
        registration = dr.register_single_dim_strategy(NAMES[op])(RULES[answer])
        self.put(Held(1, {op: answer}, registration.undo))

    @rule(op=st.sampled_from(sorted(CALLS)), every=st.booleans())
    def enter_context(self, op: str, every: bool) -> None:
        packs = None if every else [dr.OpStrategyPack(NAMES[op])]
        context = dr.implicit_strategy_context(packs)
        context.__enter__()
        answers = {} if every else {op: "gather"}
        self.put(Held(2, answers, lambda: context.__exit__(None, None, None), every))

    @precondition(lambda self: self.layers)
    @rule(data=st.data())
    def end_any(self, data: Any) -> None:
        layer = data.draw(st.sampled_from(self.layers))
        layer.end()
        layer.holders -= 1
        if layer.holders == 0:
            self.layers.remove(layer)

    @rule(op=st.sampled_from(sorted(CALLS)), elsewhere=st.booleans())
    def call(self, op: str, elsewhere: bool) -> None:
        assert self.asked(elsewhere, self.ask, op) == self.expected(op), op

    def ask(self, op: str) -> str:
        try:
            (placement,) = CALLS[op](self.x).placements
        except NotImplementedError:
            return "error"
        return "keep" if placement == Shard(0) else "gather"

    def error_of(self, op: str) -> str:
        try:
            CALLS[op](self.x)
        except RuntimeError as error:
            return str(error)
        return ""

    def covered(self, op: str) -> bool:
        """Say whether a context rules an op, whatever is registered."""
        return any(op in layer.answers for layer in self.layers if layer.height == 2)

    def asked(self, elsewhere: bool, question: Any, *arguments: Any) -> Any:
        if elsewhere:
            return self.thread.submit(question, *arguments).result()
        return question(*arguments)

    @rule(op=st.sampled_from(sorted(CALLS)), elsewhere=st.booleans())
    def a_rule_that_raises(self, op: str, elsewhere: bool) -> None:
        def wrong(*args: Any) -> Any:
            raise KeyError("wrong")

        before = LOAN.layers
        with dr.register_single_dim_strategy(NAMES[op])(wrong):
            error = self.asked(elsewhere, self.error_of, op)
            assert ("KeyError: 'wrong'" in error) != self.covered(op)
        assert LOAN.layers == before
        assert self.asked(elsewhere, self.ask, op) == self.expected(op)

    @rule(what=st.sampled_from(["kernel", "fake kernel"]), elsewhere=st.booleans())
    def a_kernel_that_raises(self, what: str, elsewhere: bool) -> None:
        FAILING.add(what)
        try:
            self.asked(elsewhere, self.ask, "shift")
        except ZeroDivisionError:
            pass
        except RuntimeError as error:  # what torch makes of what a fake kernel raises
            if not isinstance(error.__cause__, ZeroDivisionError):
                raise
        finally:
            FAILING.clear()

    @rule(op=st.sampled_from(sorted(CALLS)))
    def a_change_within_a_call(self, op: str) -> None:
        def meddling(*args: Any) -> Any:
            dr.register_single_dim_strategy(NAMES[op])(RULES["keep"])

        before = LOAN.layers
        with dr.register_single_dim_strategy(NAMES[op])(meddling):
            assert "inside the dispatch of an op" in self.error_of(op) or self.covered(op)
        assert LOAN.layers == before

    @rule(op=st.sampled_from(sorted(CALLS)))
    def a_block_that_raises(self, op: str) -> None:
        before = LOAN.layers
        try:
            with (
                dr.register_single_dim_strategy(NAMES[op])(RULES["gather"]),
                dr.implicit_strategy_context([dr.OpStrategyPack(NAMES[op])]),
            ):
                raise ZeroDivisionError
        except ZeroDivisionError:
            assert LOAN.layers == before

    @invariant()
    def as_many_layers_as_the_model_has(self) -> None:
        assert len(LOAN.layers) == len(self.layers)

    def teardown(self) -> None:
        for layer in list(self.layers):
            for _ in range(layer.holders):
                layer.end()
        assert LOAN.layers == ()
        assert len(LEDGER) == 0
        assert tables() == self.before


def tables() -> dict[str, Any]:
    held = {table: dict(getattr(propagator(), table)) for table in (*RULE_TABLES,)}
    return {**held, HANDLERS: dict(dispatcher()._custom_op_handlers)}


@pytest.fixture
def x() -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    dist.destroy_process_group()


@pytest.fixture
def made_up_plugins(fake_distribution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, claims in PLUGINS.items():
        named = [(NAMES[op], answer) for op, answer in claims.items()]
        fake_distribution(f"{name}-rules", SOURCE.format(name=name, claims=named))
    # Which distributions are there does not change, and looking for them is most of the time.
    discover, found = installer.discover, {}

    def once(chosen: Any, watch: Any) -> Any:
        key = chosen.model_dump_json()
        if key not in found:
            found[key] = discover(chosen, watch)
        return found[key]

    monkeypatch.setattr(installer, "discover", once)
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["empty-rules"]')
    monkeypatch.setenv("DTENSOR_REGISTRY_FALLBACK__MODE", "silent")


@pytest.mark.timeout(3600)
def test_any_sequence_of_changes_and_calls_is_answered_as_the_model_says(
    made_up_plugins: None, x: Any
) -> None:
    assert (x.placements, Replicate()) == ((Shard(0),), Replicate())
    with ThreadPoolExecutor(1) as thread:
        run_state_machine_as_test(
            lambda: Machine(x, thread),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                derandomize=not LONG,
                suppress_health_check=list(HealthCheck),
                # A long run is to end soon after it has found something.
                phases=(Phase.explicit, Phase.generate, *(() if LONG else (Phase.shrink,))),
            ),
        )
