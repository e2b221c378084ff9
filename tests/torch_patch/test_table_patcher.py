"""The loan of torch's tables: exact undo, roll-back at any write, entries of others left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dtensor_registry as dr
from dtensor_registry.errors import OverwrittenEntryError
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import ABSENT, LEDGER, Ledger
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator

RELU = torch.ops.aten.relu.default
NEG = torch.ops.aten.neg.default
LIBRARY = torch.library.Library("trunk_ledger", "FRAGMENT")
LIBRARY.define("f(Tensor x) -> Tensor")
LIBRARY.define("g(Tensor x, *, Tensor bias) -> Tensor")
F = torch.ops.trunk_ledger.f.default
G = torch.ops.trunk_ledger.g.default  # torch never moves its bias: the host runs it by a handler
TABLE = "op_single_dim_strategy_funcs"
TABLES = (TABLE, "op_strategy_funcs", "op_to_rules", "op_to_schema_info")


def everything() -> dict[str, dict[Any, Any]]:
    tables = {table: dict(getattr(propagator(), table)) for table in TABLES}
    return {**tables, "handlers": dict(dispatcher()._custom_op_handlers)}


def no_rows(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return []


def registered(op: Any) -> Any:
    return dr.register_single_dim_strategy(op)(no_rows)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)], ids=str)
def test_undoing_in_any_order_gives_torchs_tables_back_exactly(order: tuple[int, ...]) -> None:
    before = everything()
    loans = [registered([RELU, NEG]), registered([RELU, F, G]), registered([NEG, F, G])]
    assert G in dispatcher()._custom_op_handlers
    for place in order:
        loans[place].undo()
    assert everything() == before
    assert len(LEDGER) == 0


def test_the_latest_registration_that_is_left_rules() -> None:
    torchs = propagator().op_single_dim_strategy_funcs[RELU]
    first = dr.register_single_dim_strategy(RELU)(no_rows)
    second = dr.register_single_dim_strategy(RELU)(dr.pointwise())
    third = dr.register_single_dim_strategy(RELU)(dr.pointwise(linear=[(0,)]))

    def ruling() -> Any:
        return propagator().op_single_dim_strategy_funcs[RELU].func.rule

    assert ruling() is third.strategy.rule
    first.undo()
    assert ruling() is third.strategy.rule
    third.undo()
    assert ruling() is second.strategy.rule
    second.undo()
    assert propagator().op_single_dim_strategy_funcs[RELU] is torchs
    second.undo()  # twice does no harm


def test_an_exception_in_a_nested_block_undoes_every_level() -> None:
    before = everything()
    with (
        pytest.raises(ZeroDivisionError),
        registered(RELU),
        registered(NEG),
        registered([RELU, F]),
    ):
        _ = 1 / 0
    assert everything() == before


class Stubborn(dict[Any, Any]):
    """A table that refuses to hold the n-th value that is put into it."""

    writes_left: int

    def __setitem__(self, op: Any, value: Any) -> None:
        if self.writes_left == 0:
            self.writes_left = -1
            raise MemoryError("no room")
        self.writes_left -= 1
        super().__setitem__(op, value)


@pytest.fixture
def stubborn(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Put stubborn tables in torch's place; the argument is which write of which table fails."""
    originals = {table: getattr(propagator(), table) for table in TABLES}

    def replace(table: str, writes: int) -> Stubborn:
        replaced = Stubborn(originals[table])
        replaced.writes_left = writes
        setattr(propagator(), table, replaced)
        return replaced

    yield replace
    for table, original in originals.items():
        setattr(propagator(), table, original)


@pytest.mark.parametrize("table", [TABLE, "op_to_schema_info"])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_write_that_fails_rolls_all_of_them_back(stubborn: Any, table: str, writes: int) -> None:
    before = everything()
    stubborn(table, writes)
    with pytest.raises(MemoryError, match="no room"):
        registered([RELU, NEG, F])
    assert everything() == before
    assert LOAN.layers == ()
    assert len(LEDGER) == 0


def test_a_write_that_fails_leaves_what_was_on_loan_before(stubborn: Any) -> None:
    table = stubborn(TABLE, 99)
    with registered(RELU):
        before = everything()
        table.writes_left = 0
        with pytest.raises(MemoryError, match="no room"):
            registered([RELU, NEG])
        assert everything() == before
        assert len(LOAN.layers) == 1
        table.writes_left = 99


def test_what_others_wrote_meanwhile_is_told_and_left_alone() -> None:
    before = everything()
    registration = registered([RELU, NEG])
    table = propagator().op_single_dim_strategy_funcs
    theirs = before[TABLE][RELU]
    foreign = type(theirs)(theirs.func)
    table[RELU] = foreign
    with pytest.raises(OverwrittenEntryError) as caught:
        registration.undo()
    assert caught.value.entries == ("aten.relu.default in op_single_dim_strategy_funcs",)
    assert table[RELU] is foreign
    table[RELU] = theirs
    assert everything() == before
    registration.undo()  # it is out already


def test_what_others_took_away_meanwhile_is_told_and_left_alone() -> None:
    registration = registered(F)
    del propagator().op_to_schema_info[F]
    with pytest.raises(OverwrittenEntryError, match=r"trunk_ledger.f.default in op_to_schema_info"):
        registration.undo()


def test_what_others_wrote_is_not_written_over_by_the_next_change() -> None:
    table = propagator().op_single_dim_strategy_funcs
    theirs = table[RELU]
    registration = registered(RELU)
    foreign = type(theirs)(theirs.func)
    table[RELU] = foreign
    with registered(NEG):
        assert table[RELU] is foreign
    table[RELU] = theirs
    with pytest.raises(OverwrittenEntryError):
        registration.undo()


def test_a_value_that_is_none_is_told_from_no_value() -> None:
    ledger = Ledger()
    cell = ("op_to_rules", F)
    propagator().op_to_rules[F] = None
    try:
        ledger.write({cell: ABSENT})
        assert F not in propagator().op_to_rules
        ledger.write({})
        assert propagator().op_to_rules[F] is None
    finally:
        del propagator().op_to_rules[F]


def test_a_plan_for_the_whole_mesh_takes_torchs_single_dim_rule_out_of_the_way() -> None:
    before = everything()
    with dr.implicit_strategy_context([dr.OpStrategyPack(RELU)]):
        assert RELU not in propagator().op_single_dim_strategy_funcs
        assert propagator().op_strategy_funcs[RELU] is dr.replicate_op_strategy
    assert everything() == before


def test_a_rule_registered_over_what_others_wrote_is_in_force_and_gives_it_back() -> None:
    table = propagator().op_single_dim_strategy_funcs
    theirs = table[RELU]
    first = registered(RELU)
    foreign = type(theirs)(theirs.func)
    table[RELU] = foreign
    second = registered(RELU)
    assert table[RELU] is LOAN.find(RELU)[1].rule
    second.undo()
    assert table[RELU] is LOAN.find(RELU)[1].rule
    first.undo()
    assert table[RELU] is foreign
    table[RELU] = theirs
