"""Ops that take a tensor as a whole: sums with a dtype, powers, products along a dim."""

from __future__ import annotations

from typing import Any

from dtensor_registry import Counterexample, Held, SchemaInfo
from dtensor_registry_corrections.conditions import (
    adds_up_wider,
    first_size_differs,
    no_batch_of_right_sides,
    no_batch_to_pool,
    numbers_with_nan,
    second_size_differs,
)
from dtensor_registry_corrections.correction import Correction

_SUM, _PRODUCT = "P(sum) <- P(sum)", "P(product) <- P(product)"
_ROUNDED = "the dtype of the result is another: parts are rounded, or wrap around, one by one"
_AS_INTEGERS = (("dtype", "torch.int64"),)
_MATRICES = [[[2.0, 0.0], [0.0, 4.0]]] * 2
_SECOND = "S(1) <- S(1), S(1)"
_POOLS: dict[str, tuple[Any, ...]] = {
    "aten._adaptive_avg_pool2d_backward.default": (
        Held("float64", (1, 3, 1)),
        Held("float64", (1, 2, 1)),
    ),
    "aten.max_unpool2d.default": (
        Held("float64", (1, 2, 1)),
        Held("int64", [[[1], [2]]]),
        [4, 1],
    ),
    "aten.max_unpool3d.default": (
        Held("float64", (1, 2, 1, 1)),
        Held("int64", [[[[1]], [[2]]]]),
        [4, 1, 1],
        [2, 1, 1],
        [0, 0, 0],
    ),
}
"""Pooling ops, and a call of each without a batch dim."""

WHOLE: tuple[Correction, ...] = (
    Correction(
        ("aten.sum.default", "aten.nansum.default"),
        (_SUM,),
        _ROUNDED,
        (Counterexample(_SUM, (Held("float64", -2.0, 0.5),), _AS_INTEGERS),),
        adds_up_wider,
        reduces=True,
    ),
    Correction(
        ("aten.sum.dim_IntList",),
        (_SUM,),
        _ROUNDED,
        (Counterexample(_SUM, (Held("float64", -2.0, 0.5), 0), _AS_INTEGERS),),
        adds_up_wider,
        reduces=True,
    ),
    Correction(
        ("aten.cumsum.default",),
        (_SUM,),
        _ROUNDED,
        (Counterexample(_SUM, (Held("float64", -2.0, 0.5), 0), _AS_INTEGERS, since="2.14.1"),),
        adds_up_wider,
        reduces=True,
    ),
    Correction(
        ("aten.prod.default",),
        (_PRODUCT,),
        _ROUNDED,
        (Counterexample(_PRODUCT, (Held("float64", -2.0, -0.5),), _AS_INTEGERS),),
        adds_up_wider,
        reduces=True,
    ),
    Correction(
        ("aten.prod.dim_int",),
        (_PRODUCT,),
        _ROUNDED,
        (Counterexample(_PRODUCT, (Held("float64", -2.0, -0.5), 0), _AS_INTEGERS),),
        adds_up_wider,
        reduces=True,
    ),
    Correction(
        ("aten.nansum.default",),
        (_SUM,),
        "it passes nan over, which makes a sum of ranks nan",
        (Counterexample(_SUM, (Held("float64", float("nan"), -2.0),)),),
        numbers_with_nan,
        reduces=True,
    ),
    Correction(
        ("aten.linalg__powsum.default",),
        (_SUM,),
        "powers of parts do not add up to the power of their sum",
        (Counterexample(_SUM, (Held("float64", -2.0, -2.0), 2)),),
        reduces=True,
    ),
    Correction(
        ("aten.linalg_cross.default",),
        ("S(0) <- S(0), S(0)",),
        "an operand of size 1 goes with every element of the other, which another rank may hold",
        (
            Counterexample(
                "S(0) <- S(0), S(0)",
                (Held("float64", [[1.0, 2.0, 3.0]]), Held("float64", [[1.0, 0.0, 2.0]] * 4)),
                raises=True,
                since="2.14.1",
            ),
        ),
        first_size_differs,
        schema_info=SchemaInfo(2, ("dim",)),  # torch's key lacks it, and gives the rows of another
    ),
    Correction(
        ("aten.linalg_cross.default",),
        ("S(1) <- S(1), S(1)",),
        "an operand of size 1 goes with every element of the other, which another rank may hold",
        (
            Counterexample(
                "S(1) <- S(1), S(1)",
                (Held("float64", [[[1.0, 2.0, 3.0]]]), Held("float64", [[[1.0, 0.0, 2.0]] * 4])),
                raises=True,
                since="2.14.1",
            ),
        ),
        second_size_differs,
    ),
    Correction(
        ("aten.linalg_ldl_solve.default",),
        ("S(0) <- S(0), S(0), S(0)",),
        "right-hand sides without a batch dim have rows there, of which each rank needs all",
        (
            Counterexample(
                "S(0) <- S(0), S(0), S(0)",
                (
                    Held("float64", _MATRICES),
                    Held("int32", [[1, 2]] * 2),
                    Held("float64", [[2.0, 4.0], [4.0, 8.0]]),
                ),
                raises=True,
            ),
        ),
        no_batch_of_right_sides,
    ),
    *(
        Correction(
            (op,),
            (_SECOND,),
            "without a batch dim the second dim is one that is pooled, not the channels",
            (Counterexample(_SECOND, arguments, raises="unpool" in op),),
            no_batch_to_pool,
        )
        for op, arguments in _POOLS.items()
    ),
)
