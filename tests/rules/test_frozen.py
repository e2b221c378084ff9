"""Rules written down case by case: the first case that a call is of, and no guesses beside."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules import Frozen, Parameter, Signature, TensorMeta, case, frozen, row
from dtensor_registry.rules.well_formed import show_row

OP = "acme.f.default"
SIGNATURE = Signature(
    OP,
    (
        Parameter("x", is_tensor=True),
        Parameter("dim"),
        Parameter("w", is_tensor=True, is_required=False),
        Parameter("xs", is_tensor=True, is_required=False),
        Parameter("flag", is_keyword=True, is_required=False, default=True),
    ),
)
ROW = row(out="S(0)", x="S(0)")


def meta(*shape: int) -> TensorMeta:
    return TensorMeta(shape, (0,) * len(shape), None)


def bound(rule: Frozen) -> Frozen:
    return rule.bound(SIGNATURE, lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("when", "args", "kwargs", "holds"),
    [
        ({}, (meta(4, 2), 1), {}, True),
        ({"x": 2}, (meta(4, 2), 1), {}, True),
        ({"x": 2}, (meta(4), 1), {}, False),
        ({"dim": 1}, (meta(4, 2), 1), {}, True),
        ({"dim": 1}, (meta(4, 2), 0), {}, False),
        ({"dim": 1}, (meta(4, 2), True), {}, False),
        ({"dim": [0, 1]}, (meta(4, 2), [0, 1]), {}, True),
        ({"dim": (0, 1)}, (meta(4, 2), [1]), {}, False),
        ({"dim": -1}, (meta(4, 2),), {"dim": -1}, True),
        # What is left out has its default; a tensor that is left out is None.
        ({"flag": True}, (meta(4, 2), 1), {}, True),
        ({"flag": True}, (meta(4, 2), 1), {"flag": False}, False),
        ({"w": None}, (meta(4, 2), 1), {}, True),
        ({"w": None}, (meta(4, 2), 1, meta(2)), {}, False),
        ({"w": 1}, (meta(4, 2), 1, meta(2)), {}, True),
        ({"xs": (1, 2)}, (meta(4, 2), 1, None, [meta(2), meta(2, 3)]), {}, True),
        ({"xs": (1, 2)}, (meta(4, 2), 1, None, [meta(2)]), {}, False),
    ],
)
def test_a_case_is_of_calls_with_such_ranks_and_values(
    when: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], holds: bool
) -> None:
    assert bool(bound(frozen(case([ROW], **when)))(OP, args, kwargs)) is holds


def test_only_the_first_case_that_holds_counts() -> None:
    rule = bound(
        frozen(
            case([], dim=0),
            case([ROW, row(out="S(1)", x="S(1)")], x=2),
            case([ROW]),
        )
    )

    def rows_of(*args: Any) -> list[str]:
        return [show_row(r, 1) for r in rule(OP, args, {})]

    assert rows_of(meta(4, 2), 0) == []
    assert rows_of(meta(4, 2), 1) == ["S(0) <- S(0)", "S(1) <- S(1)"]
    assert rows_of(meta(4), 1) == ["S(0) <- S(0)"]


def test_it_is_not_asked_before_it_is_bound() -> None:
    with pytest.raises(InvalidContributionError) as caught:
        frozen(case([ROW]))(OP, (meta(4), 1), {})
    assert str(caught.value) == (
        "a frozen rule was asked for rows of acme.f.default before it was bound to an op, so it"
        " does not know where its arguments stand; use it as the rule of a strategy that is"
        " installed"
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            frozen(case([ROW], y=2)),
            "case(..., y=...): acme.f.default(Tensor x, dim, Tensor w=None, Tensor xs=None, *,"
            " flag=True) has no argument 'y'",
        ),
        (
            frozen(case([row(out="S(0)", y="S(0)")])),
            'row(out="S(0)", y="S(0)"): acme.f.default(Tensor x, dim, Tensor w=None, Tensor'
            " xs=None, *, flag=True) has no tensor argument 'y'; it has x, w, xs",
        ),
    ],
)
def test_names_are_checked_against_the_schema(rule: Frozen, message: str) -> None:
    with pytest.raises(InvalidContributionError) as caught:
        bound(rule)
    assert str(caught.value) == message


def test_it_prints_what_builds_it_and_compares_by_value() -> None:
    rule = frozen(case([ROW, row(out="P", x="P")], x=2, w=None, dim=[0, -1]), case([], x=1))
    assert str(rule) == (
        "frozen(\n"
        "    case([\n"
        '        row(out="S(0)", x="S(0)"),\n'
        '        row(out="P(sum)", x="P(sum)"),\n'
        "    ], dim=(0, -1), w=None, x=2),\n"
        "    case([], x=1),\n"
        ")"
    )
    again = eval(str(rule), {"frozen": frozen, "case": case, "row": row})
    assert again == rule == bound(rule)
    assert len({again, rule, frozen(case([ROW]))}) == 2
