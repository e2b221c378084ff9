"""What differs between two locks, as it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dtensor_registry.lock import Lock, LockedOp, differences
from dtensor_registry.lock.values import PENDING, UNASKED

OP = LockedOp(
    "aten.mm.default", "acme", "acme-rules 1.2", True, "rows_of #1a", ("S(0) <- S(0), R",)
)
FIRST, SECOND = OP.rows[0], "S(1) <- R, S(1)"
PYTHON = {"python": "3.11"}


def told(before: Lock, after: Lock) -> list[str]:
    return list(map(str, differences(before, after)))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        (
            {"plugin": "other", "distribution": "other 1"},
            ["owner: acme (acme-rules 1.2) -> other (other 1)"],
        ),
        (
            {"plugin": "torch", "distribution": "", "rule": "", "rows": ()},
            [
                "owner: acme (acme-rules 1.2) -> torch",
                "rule: rows_of #1a",
                f"rows lost: {FIRST}",
            ],
        ),
        ({"distribution": "acme-rules 1.3"}, ["version: acme-rules 1.2 -> acme-rules 1.3"]),
        ({"rule": "rows_of #2b"}, ["rule: rows_of #1a -> rows_of #2b"]),
        ({"rows": (FIRST, SECOND)}, [f"rows gained: {SECOND}"]),
        ({"rows": (SECOND,)}, [f"rows lost: {FIRST}", f"rows gained: {SECOND}"]),
        ({"rows": ()}, [f"rows lost: {FIRST}"]),
        ({"in_torch": False}, ["torch has no rule of its own for this op any more"]),
        ({"rows": (UNASKED,)}, []),
    ],
)
def test_a_change_of_an_op_is_told(changes: dict[str, object], lines: list[str]) -> None:
    after = replace(OP, **changes)  # type: ignore[arg-type]
    assert told(Lock(PYTHON, (OP,)), Lock(PYTHON, (after,))) == [
        f"aten.mm.default: {line}" for line in lines
    ]


def test_a_rule_that_torch_now_has_itself_is_told() -> None:
    before = Lock(PYTHON, (replace(OP, in_torch=False),))
    assert told(before, Lock(PYTHON, (OP,))) == [
        "aten.mm.default: torch now has its own rule for this op"
    ]


def test_rows_in_another_order_are_told_since_the_first_of_equal_ones_wins() -> None:
    before, after = (replace(OP, rows=rows) for rows in [(FIRST, SECOND), (SECOND, FIRST)])
    assert told(Lock({}, (before,)), Lock({}, (after,))) == [
        f"aten.mm.default: rows in another order: {FIRST}; {SECOND} -> {SECOND}; {FIRST}"
    ]


def test_ops_that_come_and_go_are_told_in_order() -> None:
    other = replace(OP, op="aten.add.Tensor")
    assert told(Lock({}, (OP,)), Lock({}, (other,))) == [
        "aten.add.Tensor: ruled anew: acme (acme-rules 1.2)",
        "aten.mm.default: no plugin rules it any more: acme (acme-rules 1.2)",
    ]


@pytest.mark.parametrize("pending", ["acme.f.default", "acme.f"])
def test_an_op_that_was_pending_is_compared_by_owner_and_rule_alone(pending: str) -> None:
    late = replace(OP, op=pending, rows=(PENDING,), in_torch=False, rule="x")
    bound = replace(OP, op="acme.f.default", rule="x")
    for before, after in [(late, bound), (bound, late)]:
        assert told(Lock({}, (before,)), Lock({}, (after,))) == []
    assert told(Lock({}, (late,)), Lock({}, (replace(bound, plugin="other"),))) != []
    for after in (replace(bound, rule="y"), replace(late, rule="y")):
        assert told(Lock({}, (late,)), Lock({}, (after,))) == [f"{after.op}: rule: x -> y"]


def test_versions_and_settings_come_first() -> None:
    before = Lock({"torch": "2.13.0", "plugin a": "a 1", **PYTHON}, (OP,))
    after = Lock({"torch": "2.14.1", "plugin b": "b 1", **PYTHON}, (replace(OP, rows=()),))
    assert told(before, after) == [
        "torch: changed: 2.13.0 -> 2.14.1",
        "plugin a: gone: a 1",
        "plugin b: new: b 1",
        f"aten.mm.default: rows lost: {FIRST}",
    ]


def test_hashes_of_functions_count_for_one_python_only() -> None:
    other = replace(OP, rule="rows_of #2b")
    before = Lock({**PYTHON, "fallback x": "f #1"}, (OP,))
    after = Lock({"python": "3.12", "fallback x": "f #2"}, (other,))
    assert told(before, after) == []
    assert told(Lock(PYTHON, (OP,)), Lock({"python": "3.12"}, (replace(OP, rule="g #1a"),))) == [
        "aten.mm.default: rule: rows_of #1a -> g #1a"
    ]
