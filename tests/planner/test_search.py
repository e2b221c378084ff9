"""The search against the oracle: the same cost and the same rows, whatever is asked."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.placements import Placements, parse_placements
from dtensor_registry.planner import (
    Bounds,
    Grouped,
    LowerBound,
    Problem,
    SearchResult,
    TensorInput,
    Topology,
    branch_and_bound,
    cheapest,
    row_filters,
    search,
)
from dtensor_registry.planner.branch_and_bound import Search
from dtensor_registry.planner.row_table import Kinds, row_table
from dtensor_registry.planner.targets import Moves

CALLS = 500
CHUNKS = 200 if os.environ.get("DTENSOR_REGISTRY_LONG") == "1" else 5


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_search_and_oracle_agree_in_cost_and_rows(
    differences: Callable[[int, int], Iterator[str]], seed: int
) -> None:
    assert list(differences(seed, CALLS)) == []


def test_the_random_calls_are_of_every_kind(draw: Any, torch_of: Any) -> None:
    source = draw(0)
    count = 1_000
    kinds: Counter[str] = Counter()
    for _ in range(count):
        problem = source.problem()
        choice = cheapest(problem, torch_of(problem).ask)
        if choice is None:
            kinds["no valid row"] += 1
        elif choice.cost == 0.0:
            moved = any(
                tensor.sources[0] != target
                for tensor, target in zip(problem.inputs, choice.candidate.inputs, strict=True)
            )
            kinds["moved for nothing" if moved else "unmoved"] += 1
        else:
            kinds["infinite" if choice.cost == math.inf else "paid"] += 1
    assert min(kinds.values()) >= count / 100, kinds
    assert len(kinds) == 5


def _too_high(bounds: Any, factor: float, added: float) -> Any:
    def higher(self: LowerBound, options: Any) -> Bounds:
        least = bounds(self, options)
        return Bounds(
            tuple(factor * value for value in least.factors),
            tuple(tuple(added * value for value in there) for there in least.added),
        )

    return higher


def _forget(place: int) -> Callable[[pytest.MonkeyPatch], None]:
    equivalence_keys = Moves.equivalence_keys

    def forgetful(self: Moves, mesh_dim: int, finite: bool) -> Any:
        found = equivalence_keys(self, mesh_dim, finite)
        return [key and (*key[:place], 0, *key[place + 1 :]) for key in found]

    return lambda patch: patch.setattr(Moves, "equivalence_keys", forgetful)


def _cuts_even_whole_groups(cut: Any) -> Any:
    def too_strict(
        self: Moves, pieces: tuple[int, ...], ranks: int, tensor_dim: int, factor: int
    ) -> Any:
        coarse = self._groups.get(tensor_dim, 0) // 2
        if coarse and tensor_dim < len(pieces) and coarse % (pieces[tensor_dim] * ranks * factor):
            return None
        return cut(self, pieces, ranks, tensor_dim, factor)

    return too_strict


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "floors that are too high": lambda patch: patch.setattr(branch_and_bound, "SLACK", 1.3),
    "factors that are too high": lambda patch: patch.setattr(
        LowerBound, "bounds", _too_high(LowerBound.bounds, 2.0, 1.0)
    ),
    "too much for the open mesh dims": lambda patch: patch.setattr(
        LowerBound, "bounds", _too_high(LowerBound.bounds, 1.0, 2.0)
    ),
    "children out of order": lambda patch: patch.setattr(
        branch_and_bound, "_floor", lambda node: 0.0
    ),
    "ties out of row order": lambda patch: patch.setattr(
        Search, "_precedes", lambda self, rows: self._best is None
    ),
    "inputs that stay come no longer first": lambda patch: patch.setattr(
        search, "_unmoved", lambda problem, rows: None
    ),
    "nothing found where all is infinite": lambda patch: patch.setattr(
        Search, "first", lambda self: None
    ),
    "rows told apart by fewer effects": _forget(0),
    "rows not told apart by an input's kind of partial": _forget(1),
    "rows not told apart by an output's kind of partial": lambda patch: patch.setattr(
        Kinds, "among", lambda placements: None
    ),
    "rows not told apart by whether they cut an output's groups": lambda patch: patch.setattr(
        row_filters, "_grouped_outputs", lambda problem: {}
    ),
    "inputs whose groups are taken for smaller": lambda patch: patch.setattr(
        Moves, "_cut", _cuts_even_whole_groups(Moves._cut)
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices(
    differences: Callable[[int, int], Iterator[str]], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_table.cache_clear()
    FAULTS[fault](monkeypatch)
    try:
        assert next(differences(0, CALLS * 5), None) is not None
    finally:
        row_table.cache_clear()


PROGRAM = """
import runpy, sys
from dtensor_registry.planner import cheapest
names = runpy.run_path(sys.argv[1])
draw = names["Draw"](7)
for _ in range(300):
    problem = draw.problem()
    print(cheapest(problem, names["Torch"](problem).ask))
"""


def test_the_choice_does_not_depend_on_the_hash_seed() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(Path(__file__).with_name("conftest.py"))],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1", "2024")
    ]
    assert printed[0].count("combinations:") > 200
    assert printed[0] == printed[1] == printed[2]


def tensor(source: str, shape: tuple[int, ...] = (64, 64), **more: Any) -> TensorInput:
    read: Any = parse_placements(source)
    return TensorInput(shape, (read,), nbytes=4 * math.prod(shape), **more)


def question(mesh_shape: tuple[int, ...], rows: str, *inputs: TensorInput, **more: Any) -> Problem:
    read: Any = [
        tuple(None if entry == "-" else parse_placements(entry)[0] for entry in row.split())
        for row in rows.split("|")
    ]
    topology = Topology.assumed(mesh_shape, devices_per_host=8)
    return Problem(topology, tuple(read), len(read[0]) - len(inputs), inputs, **more)


def chosen(problem: Problem, ask: Any = None) -> SearchResult:
    choice = cheapest(problem, ask)
    assert choice is not None
    return choice


def test_inputs_that_stay_beat_an_earlier_row_at_the_same_cost() -> None:
    choice = chosen(question((2, 2), "R P(sum) | R R", tensor("R, R")))
    assert (choice.cost, choice.candidate.rows) == (0.0, (1, 1))


def test_inputs_that_stay_beat_an_earlier_row_where_only_later_outputs_are_valid() -> None:
    # The first rows that keep x, 1 and 3, would mix kinds of partial in the output.
    rows = "R P(sum) | P(max) R | P(sum) R | P(sum) S(0)"
    choice = chosen(question((2, 2), rows, tensor("R, S(0)")))
    assert (choice.cost, choice.candidate.rows) == (0.0, (2, 3))


def test_kinds_of_partial_that_clash_in_an_input_leave_a_later_row() -> None:
    # On mesh dim 0 both rows are free, but only the second goes with P(max) on mesh dim 1.
    choice = chosen(question((2, 2), "R P(sum) | R P(max)", tensor("R, P(max)")))
    assert (choice.cost, choice.candidate.rows) == (0.0, (1, 1))


def test_an_uneven_input_that_stays_leaves_a_later_row() -> None:
    # On mesh dim 0 rows 0 and 1 are free, but x may be cut on mesh dim 1 only if it stays.
    x, y = tensor("R, S(0)", (1, 8)), tensor("R, R")
    rows = "R P(sum) S(0) | R R S(0) | R S(0) R"
    choice = chosen(question((2, 2), rows, x, y, allow_uneven_sharding=True))
    assert (choice.cost, choice.candidate.rows) == (0.0, (1, 2))


def test_where_everything_is_infinite_the_first_valid_row_is_taken() -> None:
    x = tensor("S(0), S(0)")
    choice = chosen(question((2, 2), "R P(max) | P(max) P(min) | R P(min)", x))
    assert (choice.cost, choice.candidate.rows) == (math.inf, (0, 0))
    choice = chosen(
        question((2, 2), "P(max) P(max) | P(min) P(max)", x, allow_uneven_sharding=True)
    )
    assert choice.candidate.rows == (0, 0)


def test_an_output_that_is_no_tensor_on_some_mesh_dim_has_no_kinds_to_mix() -> None:
    rows = "P(max) S(0) S(0) | - S(1) S(0) | P(sum) S(2) S(0)"
    x, y = tensor("S(0), S(2), S(1)", (8, 8, 8)), tensor("R, R, R")
    choice = chosen(question((2, 2, 2), rows, x, y))
    assert (choice.cost, choice.candidate.rows) == (0.0, (0, 2, 1))
    assert choice.candidate.outputs == (None,)


def test_ranks_that_cannot_share_the_groups_of_a_dim_take_another_row() -> None:
    rows = "R R | S(0) S(0) | S(1) S(1)"
    for position, source, groups, rows_taken in [
        (0, "S(0), S(0)", 4, (1, 1)),
        (0, "S(0), S(0)", 6, (1, 0)),
        (1, "S(0), S(0)", 6, (1, 0)),
        (1, "S(0), S(0)", 3, (0, 0)),
        # Of two mesh dims that cut it the groups need only the one that stays.
        (1, "S(0), S(1)", 2, (1, 2)),
    ]:
        grouped = (Grouped(position, 0, groups),)
        choice = chosen(question((2, 2), rows, tensor(source), grouped=grouped))
        assert choice.candidate.rows == rows_taken, (position, groups)


def test_an_earlier_row_that_cuts_groups_of_the_output_does_not_hide_a_later_one() -> None:
    rows = "S(0) S(0) | S(1) S(0)"
    problem = question((2, 2), rows, tensor("R, R"), grouped=(Grouped(0, 0, 2),))
    choice = chosen(problem)
    assert (choice.candidate.rows, choice.cost) == ((0, 1), 0.0)
    assert "mesh dim 0, 2 ranks: row 0, S(0)/2 <- S(0);" in str(choice)


def test_a_row_whose_groups_would_be_cut_is_no_obstacle_where_the_output_is_no_tensor() -> None:
    rows = "S(0) S(0) | - S(1)"
    problem = question((2, 2), rows, tensor("S(0), S(1)"), grouped=(Grouped(0, 0, 3),))
    assert chosen(problem).candidate.rows == (0, 1)


def test_what_is_uneven_may_stay_but_what_cuts_groups_may_not() -> None:
    x = tensor("S(0)", (3, 64))
    problem = question((4,), "R R | S(0) S(0)", x, allow_uneven_sharding=True)
    assert chosen(problem).candidate.rows == (1,)
    grouped = replace(problem, grouped=(Grouped(1, 0, 3),))
    assert chosen(grouped).candidate.rows == (0,)


def test_there_is_no_choice_where_no_combination_is_valid() -> None:
    assert cheapest(question((128,), "S(0) S(0)", tensor("R"))) is None
    assert cheapest(question((2,), "R R", tensor("S(0)", pinned="written"))) is None


def test_a_call_without_tensors_takes_the_first_row() -> None:
    assert chosen(question((2, 2), "S(0) | R")).candidate.rows == (0, 0)


def test_several_sources_are_not_for_the_search() -> None:
    sources: Any = (parse_placements("R"), parse_placements("S(0)"))
    x = TensorInput((8,), sources)
    with pytest.raises(ValueError, match="one source each"):
        cheapest(question((2,), "R R", x))


class Asked:
    """Answers like torch, and keeps what it was asked."""

    def __init__(self, prices: dict[str, float]) -> None:
        self.asked: list[tuple[int, str]] = []
        self._prices = prices

    def __call__(self, position: int, target: Placements) -> float:
        shown = ", ".join(map(str, target))
        self.asked.append((position, shown))
        return self._prices[shown]


def test_torch_is_asked_once_for_each_move_that_only_it_can_price() -> None:
    rows = "R R R | S(0) S(0) R | S(1) S(1) R | S(0) S(0) S(0)"
    ask = Asked({"R": 9.0, "S(0)": 5.0, "S(1)": 7.0})
    x, y = tensor("_S(0, 2)"), tensor("R")
    choice = chosen(question((2,), rows, x, y), ask)
    assert choice.candidate.rows == (1,)
    assert choice.candidate.costs == ((5.0,), (0.0,))
    assert ask.asked == [(0, "R"), (0, "S(0)"), (0, "S(1)")]


def test_torch_is_not_asked_where_a_strided_shard_is_only_another_option() -> None:
    ask = Asked({"_S(0, 2)": 50.0})
    choice = chosen(question((2,), "R _S(0,2) | R R", tensor("S(0)")), ask)
    assert choice.candidate.rows == (1,)
    assert ask.asked == [(0, "_S(0, 2)")]


def test_torch_is_asked_where_its_caller_knows_a_reason() -> None:
    ask = Asked({"R": 3.0, "S(1)": 2.0})
    problem = question((2,), "R R | S(1) S(1)", tensor("S(0)", priced_by_torch=True))
    assert chosen(problem, ask).cost == 2.0


def test_torch_is_not_asked_what_staying_costs() -> None:
    ask = Asked({"S(1)": 2.0})
    rows = "S(1) S(1) R | S(0) _S(0,2) S(0)"
    problem = question((2,), rows, tensor("_S(0, 2)"), tensor("R"))
    assert chosen(problem, ask).candidate.rows == (1,)
    assert ask.asked == [(0, "S(1)")]
    assert chosen(question((2,), "R R | S(0) _S(0,2)", tensor("_S(0, 2)"))).nodes == 0


def test_nobody_to_ask_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="only torch can price the moves of input 0: pass `ask`"):
        cheapest(question((2,), "R R", tensor("_S(0, 2)")))
