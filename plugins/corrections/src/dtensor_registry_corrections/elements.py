"""Ops on single elements that do not rise, or turn what is no number into a number."""

from __future__ import annotations

from dtensor_registry import Counterexample, Held
from dtensor_registry_corrections.conditions import (
    another_dtype,
    becomes_complex,
    holds_less,
    holds_more,
    not_rising,
    numbers_with_nan,
    two_dtypes,
)
from dtensor_registry_corrections.correction import Correction

_MAX, _MIN, _SUM = "P(max) <- P(max)", "P(min) <- P(min)", "P(sum) <- P(sum)"
_NAN = float("nan")
_IS_NUMBER = "it makes a number of nan, which is the largest and the smallest of what ranks hold"
_OF_TWO = "it passes nan over, which is the largest and the smallest of what ranks hold"
_WRAPS = "integers wrap around, so a larger part does not make a larger result"
_PARTS = "a sum of small integers wraps around; one of the parts' results does not"


def _with_nan(row: str, number: float) -> Counterexample:
    return Counterexample(row, (Held("float64", _NAN, number),))


def _beside_nan(kind: str, sign: int) -> tuple[Counterexample, ...]:
    """Make examples for each way to have a partial tensor with nan beside another operand."""
    partial = f"P({kind})"
    held, whole = Held("float64", _NAN, -3.0 * sign), Held("float64", -7.0 * sign)
    both = (Held("float64", _NAN, 3.0 * sign), Held("float64", 1.0 * sign, 2.0 * sign))
    return (
        Counterexample(f"{partial} <- {partial}, R", (held, whole)),
        Counterexample(f"{partial} <- R, {partial}", (whole, held)),
        Counterexample(f"{partial} <- {partial}, {partial}", both),
    )


ELEMENTS: tuple[Correction, ...] = (
    Correction(
        ("aten.threshold.default", "aten.threshold_.default", "aten.threshold.out"),
        (_MAX, _MIN),
        "with a value above the threshold the op first falls, then rises",
        (
            Counterexample(_MAX, (Held("float64", -1.0, 1.0), 0.0, 5.0)),
            Counterexample(_MIN, (Held("float64", -1.0, 1.0), 0.0, 5.0)),
        ),
        not_rising,
    ),
    Correction(
        ("aten.nan_to_num.default",),
        (_MAX, _MIN),
        _IS_NUMBER,
        (_with_nan(_MAX, 3.0), _with_nan(_MIN, -3.0)),
        numbers_with_nan,
    ),
    Correction(
        ("aten.sign.default", "aten._foreach_sign.default"),
        (_MAX, _MIN),
        _IS_NUMBER,
        (_with_nan(_MAX, 3.0), _with_nan(_MIN, -3.0)),
        numbers_with_nan,
    ),
    Correction(
        ("aten.sgn.default",),
        (_MAX, _MIN),
        _IS_NUMBER,
        (_with_nan(_MAX, 3.0), _with_nan(_MIN, -3.0)),
        numbers_with_nan,
    ),
    Correction(
        ("aten.fmax.default", "prims.fmax.default"),
        ("P(max) <- P(max), R", "P(max) <- R, P(max)", "P(max) <- P(max), P(max)"),
        _OF_TWO,
        _beside_nan("max", 1),
        numbers_with_nan,
    ),
    Correction(
        ("aten.fmin.default", "prims.fmin.default"),
        ("P(min) <- P(min), R", "P(min) <- R, P(min)", "P(min) <- P(min), P(min)"),
        _OF_TWO,
        _beside_nan("min", -1),
        numbers_with_nan,
    ),
    Correction(
        ("aten.special_xlog1py.default",),
        ("P(sum) <- P(sum), R", "P(avg) <- P(avg), R"),
        "it is 0 where the first operand is 0, whatever the second is; parts that add up to 0 are"
        " not 0",
        (
            Counterexample(
                "P(sum) <- P(sum), R", (Held("float64", 1.0, -1.0), Held("float64", -1.0))
            ),
            Counterexample(
                "P(avg) <- P(avg), R", (Held("float64", 1.0, -1.0), Held("float64", -1.0))
            ),
        ),
    ),
    Correction(
        ("aten._to_copy.default",),
        (_SUM,),
        _PARTS,
        (Counterexample(_SUM, (Held("uint8", 200, 100),), (("dtype", "torch.int64"),)),),
        holds_more,
    ),
    Correction(
        ("aten._to_copy.default",),
        (_MAX, _MIN),
        _WRAPS,
        (
            Counterexample(_MAX, (Held("uint8", 0, 200),), (("dtype", "torch.int8"),)),
            Counterexample(_MIN, (Held("uint8", 0, 200),), (("dtype", "torch.int8"),)),
        ),
        holds_less,
    ),
    # gloo does not reduce averages of integers, so that no call on the CPU shows this.
    Correction(
        ("aten._to_copy.default",),
        ("P(avg) <- P(avg)",),
        "an average of small integers that wrap around is another",
        (),
        holds_less,
    ),
    Correction(
        ("aten._to_copy.default",),
        (_MAX, _MIN),
        "complex numbers have no largest, so that it could never be found",
        (
            Counterexample(
                _MAX, (Held("float64", -2.0, 3.0),), (("dtype", "torch.complex128"),), raises=True
            ),
            Counterexample(
                _MIN, (Held("float64", -2.0, 3.0),), (("dtype", "torch.complex128"),), raises=True
            ),
        ),
        becomes_complex,
    ),
    Correction(
        ("aten.view.dtype",),
        (_SUM, "P(avg) <- P(avg)", _MAX, _MIN),
        "bits that are read as another dtype neither add up nor keep their order",
        (
            Counterexample(_SUM, (Held("float64", -2.0, -2.0), "torch.int64")),
            Counterexample("P(avg) <- P(avg)", (Held("float64", 1.0, 16.0), "torch.float32")),
            Counterexample(_MAX, (Held("float64", -2.0, -0.5), "torch.int64")),
            Counterexample(_MIN, (Held("float64", -2.0, -0.5), "torch.int64")),
        ),
        another_dtype,
        reduces=True,
    ),
    Correction(
        ("aten.slice_scatter.default",),
        ("P(sum) <- P(sum), P(sum)", "P(avg) <- P(avg), P(avg)"),
        "the source is rounded to the dtype of the input, in each part anew",
        (
            Counterexample(
                "P(sum) <- P(sum), P(sum)",
                (Held("int64", 1, 1), Held("float64", -2.0, 0.5)),
                since="2.14.1",
            ),
            Counterexample(
                "P(avg) <- P(avg), P(avg)",
                (Held("float64", 1.0, 1.0), Held("uint8", 200, 100)),
                since="2.14.1",
            ),
        ),
        two_dtypes,
        reduces=True,
    ),
)
