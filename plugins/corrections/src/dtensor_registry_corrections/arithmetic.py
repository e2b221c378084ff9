"""Sums, products and quotients: integers wrap around, and a partial tensor may wrap elsewhere."""

from __future__ import annotations

from dtensor_registry import Counterexample, Held
from dtensor_registry_corrections.conditions import (
    integers,
    narrow_integers,
    narrow_times_fraction,
    other_is_no_such_integer,
    two_narrow_integers,
)
from dtensor_registry_corrections.correction import Correction

_WRAPS = "integers wrap around, so a larger part does not make a larger result"
_PARTS = "a sum of small integers wraps around; one of the parts' results does not"
_P_MAX, _P_MIN = "P(max) <- P(max), R", "P(min) <- P(min), R"
_BOTH, _LEFT, _RIGHT = "P(sum) <- P(sum), P(sum)", "P(sum) <- P(sum), R", "P(sum) <- R, P(sum)"
_ONE = "P(sum) <- P(sum)"
_ROUNDED = "an average of integers is rounded, before or after the op"
_AVG = "P(avg) <- P(avg)"
_AVG_BOTH, _AVG_LEFT, _AVG_RIGHT = f"{_AVG}, P(avg)", f"{_AVG}, R", "P(avg) <- R, P(avg)"
_SMALL, _LARGE = Held("uint8", 200, 100), Held("int64", 3)

ARITHMETIC: tuple[Correction, ...] = (
    Correction(
        ("aten.add.Tensor", "aten._foreach_add.List"),
        (_P_MAX, _P_MIN),
        _WRAPS,
        (
            Counterexample(_P_MAX, (Held("uint8", 0, 255), Held("uint8", 1))),
            Counterexample(_P_MIN, (Held("uint8", 0, 255), Held("uint8", 1))),
        ),
        two_narrow_integers,
    ),
    Correction(
        ("aten.sub.Tensor", "aten._foreach_sub.List"),
        (_P_MAX, _P_MIN),
        _WRAPS,
        (
            Counterexample(_P_MAX, (Held("uint8", 0, 3), Held("uint8", 1))),
            Counterexample(_P_MIN, (Held("uint8", 0, 3), Held("uint8", 1))),
        ),
        two_narrow_integers,
    ),
    Correction(
        (
            "aten.add.Tensor",
            "aten._foreach_add.List",
            "aten.sub.Tensor",
            "aten._foreach_sub.List",
        ),
        (_BOTH,),
        _PARTS,
        (Counterexample(_BOTH, (_SMALL, Held("int64", 3, 4))),),
        other_is_no_such_integer,
    ),
    Correction(
        ("aten.mul.Tensor", "aten._foreach_mul.List"),
        (_LEFT, _RIGHT),
        _PARTS,
        (Counterexample(_LEFT, (_SMALL, _LARGE)), Counterexample(_RIGHT, (_LARGE, _SMALL))),
        other_is_no_such_integer,
    ),
    Correction(
        ("aten.mul.Tensor", "aten.mul.Scalar"),
        (_ONE,),
        _PARTS,
        (Counterexample(_ONE, (_SMALL, 0.5)),),
        narrow_times_fraction,
    ),
    Correction(
        ("aten.div.Tensor", "aten._foreach_div.List"),
        (_LEFT,),
        _PARTS,
        (Counterexample(_LEFT, (_SMALL, _LARGE)),),
        narrow_integers,
    ),
    Correction(
        ("aten.div.Tensor", "aten.div.Scalar"),
        (_ONE,),
        _PARTS,
        (Counterexample(_ONE, (_SMALL, 2)),),
        narrow_integers,
    ),
    # gloo does not reduce averages of integers, so that no call on the CPU shows these.
    Correction(
        ("aten.add.Tensor", "aten._foreach_add.List", "aten.sub.Tensor", "aten._foreach_sub.List"),
        (_AVG_BOTH, _AVG_LEFT, _AVG_RIGHT),
        _ROUNDED,
        (),
        integers,
    ),
    Correction(
        ("aten.mul.Tensor", "aten._foreach_mul.List"),
        (_AVG_LEFT, _AVG_RIGHT),
        _ROUNDED,
        (),
        integers,
    ),
    Correction(("aten.div.Tensor", "aten._foreach_div.List"), (_AVG_LEFT,), _ROUNDED, (), integers),
    Correction(
        (
            "aten.mul.Tensor",
            "aten.mul.Scalar",
            "aten.div.Tensor",
            "aten.div.Scalar",
            "aten.neg.default",
            "aten._foreach_neg.default",
        ),
        (_AVG,),
        _ROUNDED,
        (),
        integers,
    ),
    Correction(
        ("aten.neg.default", "aten._foreach_neg.default"),
        ("P(min) <- P(max)", "P(max) <- P(min)"),
        _WRAPS,
        (
            Counterexample("P(min) <- P(max)", (Held("uint8", 0, 1),)),
            Counterexample("P(max) <- P(min)", (Held("uint8", 0, 1),)),
        ),
        narrow_integers,
    ),
)
