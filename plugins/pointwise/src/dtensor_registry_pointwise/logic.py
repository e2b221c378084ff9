"""Ops whose values are truth values or bits.

None is linear, and each identity says why. Any dim can be sharded.
"""

from __future__ import annotations

from dtensor_registry import pointwise
from dtensor_registry_pointwise.families import Family, claim

BITS = Family(
    "1 ^ (1 + 1) = 3, (1 ^ 1) + (1 ^ 1) = 0",
    claim(
        [
            "aten.__ilshift__.Scalar",
            "aten.__ilshift__.Tensor",
            "aten.__ixor__.Scalar",
            "aten.__ixor__.Tensor",
            "aten.__lshift__.Scalar",
            "aten.__lshift__.Tensor",
            "aten.__rshift__.Scalar",
            "aten.__rshift__.Tensor",
            "aten.__xor__.Scalar",
            "aten.__xor__.Tensor",
            "aten.bitwise_and.Scalar",
            "aten.bitwise_and.Scalar_Tensor",
            "aten.bitwise_and.Scalar_out",
            "aten.bitwise_and.Tensor",
            "aten.bitwise_and.Tensor_out",
            "aten.bitwise_and_.Scalar",
            "aten.bitwise_and_.Tensor",
            "aten.bitwise_left_shift.Scalar_Tensor",
            "aten.bitwise_left_shift.Tensor",
            "aten.bitwise_left_shift.Tensor_Scalar",
            "aten.bitwise_left_shift.Tensor_Scalar_out",
            "aten.bitwise_left_shift.Tensor_out",
            "aten.bitwise_left_shift_.Tensor",
            "aten.bitwise_left_shift_.Tensor_Scalar",
            "aten.bitwise_not.default",
            "aten.bitwise_not.out",
            "aten.bitwise_not_.default",
            "aten.bitwise_or.Scalar",
            "aten.bitwise_or.Scalar_Tensor",
            "aten.bitwise_or.Scalar_out",
            "aten.bitwise_or.Tensor",
            "aten.bitwise_or.Tensor_out",
            "aten.bitwise_or_.Scalar",
            "aten.bitwise_or_.Tensor",
            "aten.bitwise_right_shift.Scalar_Tensor",
            "aten.bitwise_right_shift.Tensor",
            "aten.bitwise_right_shift.Tensor_Scalar",
            "aten.bitwise_right_shift.Tensor_Scalar_out",
            "aten.bitwise_right_shift.Tensor_out",
            "aten.bitwise_right_shift_.Tensor",
            "aten.bitwise_right_shift_.Tensor_Scalar",
            "aten.bitwise_xor.Scalar",
            "aten.bitwise_xor.Scalar_Tensor",
            "aten.bitwise_xor.Scalar_out",
            "aten.bitwise_xor.Tensor",
            "aten.bitwise_xor.Tensor_out",
            "aten.bitwise_xor_.Scalar",
            "aten.bitwise_xor_.Tensor",
            "prims.bitwise_not.default",
        ],
        pointwise(),
    ),
)

CLASSIFICATIONS = Family(
    "isinf(inf + inf) = 1, isinf(inf) + isinf(inf) = 2",
    claim(
        [
            "aten.heaviside.default",
            "aten.heaviside.out",
            "aten.isfinite.default",
            "aten.isinf.default",
            "aten.isnan.default",
            "aten.isneginf.default",
            "aten.isneginf.out",
            "aten.isposinf.default",
            "aten.isposinf.out",
            "aten.signbit.default",
            "aten.signbit.out",
            "prims.signbit.default",
        ],
        pointwise(),
    ),
)

COMPARISONS = Family(
    "[2 > 1] = 1, [1 > 1] + [1 > 1] = 0",
    claim(
        [
            "aten.eq.Scalar",
            "aten.eq.Scalar_out",
            "aten.eq.Tensor",
            "aten.eq.Tensor_out",
            "aten.ge.Scalar",
            "aten.ge.Scalar_out",
            "aten.ge.Tensor",
            "aten.ge.Tensor_out",
            "aten.gt.Scalar",
            "aten.gt.Scalar_out",
            "aten.gt.Tensor",
            "aten.gt.Tensor_out",
            "aten.le.Scalar",
            "aten.le.Scalar_out",
            "aten.le.Tensor",
            "aten.le.Tensor_out",
            "aten.lt.Scalar",
            "aten.lt.Scalar_out",
            "aten.lt.Tensor",
            "aten.lt.Tensor_out",
            "aten.ne.Scalar",
            "aten.ne.Scalar_out",
            "aten.ne.Tensor",
            "aten.ne.Tensor_out",
        ],
        pointwise(),
    ),
)

LOGIC = Family(
    "not (1 - 1) = 1, not 1 + not -1 = 0",
    claim(
        [
            "aten.logical_and.default",
            "aten.logical_and.out",
            "aten.logical_and_.default",
            "aten.logical_not.default",
            "aten.logical_not.out",
            "aten.logical_not_.default",
            "aten.logical_or.default",
            "aten.logical_or.out",
            "aten.logical_or_.default",
            "aten.logical_xor.default",
            "aten.logical_xor.out",
            "aten.logical_xor_.default",
        ],
        pointwise(),
    ),
)
