"""Rows of torch's own rules that are left out, or whose partial operands are reduced first."""

from __future__ import annotations

from functools import partial

from dtensor_registry import MoveFirst, PlacedCall, SingleDimStrategy, amended, without
from dtensor_registry_corrections.all_dims import (
    BECAUSE,
    Amend,
    or_over_all_dims,
    shows_all_dims,
)
from dtensor_registry_corrections.arithmetic import ARITHMETIC
from dtensor_registry_corrections.correction import Correction
from dtensor_registry_corrections.elements import ELEMENTS
from dtensor_registry_corrections.whole import WHOLE

CORRECTIONS: tuple[Correction, ...] = (*ARITHMETIC, *ELEMENTS, *WHOLE)
"""All corrections of rows; docs/corrections.md is written from them."""

_NAMING_DIMS = ("aten.linalg__powsum.default", "aten.nansum.default", "aten.sum.dim_IntList")
"""Ops with such corrections that also take no dims for all; see `all_dims`."""


def of_op(op: str) -> tuple[Correction, ...]:
    """List what is wrong with the rule of one op."""
    return tuple(correction for correction in CORRECTIONS if op in correction.ops)


def _strategy(op: str) -> SingleDimStrategy:
    corrections = of_op(op)
    shows = tuple(example for correction in corrections for example in correction.examples)
    if all(correction.reduces for correction in corrections):
        reasons = [correction.because for correction in corrections]
        amend: Amend = partial(_reduced_first, op)
        if op in _NAMING_DIMS:
            amend = or_over_all_dims(amend)
            reasons.append(BECAUSE)
            shows = (*shows, shows_all_dims(op))
        because = "; ".join(dict.fromkeys(reasons))
        return SingleDimStrategy(op, amended(amend, because=because), shows=shows)
    keys = [each.schema_info for each in corrections if each.schema_info is not None]
    return SingleDimStrategy(
        op,
        without(*(correction.wrong() for correction in corrections)),
        schema_info=keys[0] if keys else None,
        shows=shows,
    )


def _reduced_first(op: str, call: PlacedCall) -> MoveFirst | None:
    """Reduce the partial operands of a call for which a row that keeps them is wrong."""
    moves = {
        name: tensor.replicated(*tensor.partials())
        for name, tensor in call.tensors.items()
        if tensor.partials()
    }
    dtype = call.arguments.get("dtype")
    args = (*call.tensors.values(), dtype)
    wrong = any(each.when is None or each.when(op, args, {"dtype": dtype}) for each in of_op(op))
    return MoveFirst(moves) if moves and wrong else None


WITHOUT_WRONG_ROWS: tuple[SingleDimStrategy, ...] = tuple(
    map(_strategy, dict.fromkeys(op for correction in CORRECTIONS for op in correction.ops))
)
