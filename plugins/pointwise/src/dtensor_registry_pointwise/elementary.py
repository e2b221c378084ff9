"""Elementary functions: powers, exponentials, angles, roundings, extremes, activations.

None is linear, and each identity says why. Any dim can be sharded.
"""

from __future__ import annotations

from dtensor_registry import pointwise
from dtensor_registry_pointwise.families import Family, claim

ACTIVATIONS = Family(
    "relu(1 - 1) = 0, relu(1) + relu(-1) = 1",
    claim(
        [
            "aten.celu.default",
            "aten.celu_.default",
            "aten.elu.default",
            "aten.elu_.default",
            "aten.gelu.default",
            "aten.hardswish.default",
            "aten.hardswish.out",
            "aten.hardswish_.default",
            "aten.leaky_relu.default",
            "aten.leaky_relu_.default",
            "aten.mish.default",
            "aten.silu.default",
            "aten.silu.out",
            "aten.silu_.default",
            "aten.softplus.default",
            "aten.threshold.default",
        ],
        pointwise(),
    ),
)

CASTS = Family(
    "int(0.5 + 0.5) = 1, int(0.5) + int(0.5) = 0",
    claim(
        [
            "prims.convert_element_type.default",
        ],
        pointwise(),
    ),
)

EXPONENTIALS = Family(
    "exp(a + b) = exp(a) * exp(b)",
    claim(
        [
            "aten.log.default",
            "aten.log.out",
            "aten.log10.default",
            "aten.log10.out",
            "aten.log10_.default",
            "aten.log1p.default",
            "aten.log1p.out",
            "aten.log1p_.default",
            "aten.log2.default",
            "aten.log2.out",
            "aten.log2_.default",
            "aten.log_.default",
            "aten.logit.default",
            "aten.logit.out",
            "aten.logit_.default",
            "aten.special_entr.default",
            "aten.special_entr.out",
            "aten.special_xlog1py.default",
            "aten.special_xlog1py.other_scalar",
            "aten.special_xlog1py.other_scalar_out",
            "aten.special_xlog1py.out",
            "aten.special_xlog1py.self_scalar",
            "aten.special_xlog1py.self_scalar_out",
            "aten.xlogy.OutScalar_Other",
            "aten.xlogy.OutScalar_Self",
            "aten.xlogy.OutTensor",
            "aten.xlogy.Scalar_Other",
            "aten.xlogy.Scalar_Self",
            "aten.xlogy.Tensor",
            "aten.xlogy_.Scalar_Other",
            "aten.xlogy_.Tensor",
            "prims.log2.default",
        ],
        pointwise(),
    ),
)

EXTREMES = Family(
    "max(1 - 1, 0) = 0, max(1, 0) + max(-1, 0) = 1",
    claim(
        [
            "aten.clamp.Tensor",
            "aten.clamp.Tensor_out",
            "aten.clamp_.Tensor",
            "aten.clip.Tensor",
            "aten.clip_.Tensor",
            "aten.fmax.default",
            "aten.fmin.default",
            "aten.nan_to_num.default",
            "aten.nan_to_num.out",
            "aten.nan_to_num_.default",
        ],
        pointwise(),
    ),
)

FLOAT_PARTS = Family(
    "frexp(1 + 1) = (0.5, 2), frexp(1) + frexp(1) = (1, 2)",
    claim(
        [
            "aten.frexp.Tensor",
            "aten.frexp.Tensor_out",
        ],
        pointwise(outputs=2, out=["mantissa", "exponent"]),
    ),
)

INTEGERS = Family(
    "gcd(2 + 2, 2) = 2, gcd(2, 2) + gcd(2, 2) = 4",
    claim(
        [
            "aten.gcd.default",
            "aten.gcd.out",
            "aten.lcm.default",
            "aten.lcm.out",
        ],
        pointwise(),
    ),
)

POWERS = Family(
    "(a + b)**2 = a**2 + 2 * a * b + b**2",
    claim(
        [
            "aten.float_power.Scalar",
            "aten.float_power.Scalar_out",
            "aten.float_power.Tensor_Scalar",
            "aten.float_power.Tensor_Scalar_out",
            "aten.float_power.Tensor_Tensor",
            "aten.float_power.Tensor_Tensor_out",
            "aten.float_power_.Scalar",
            "aten.float_power_.Tensor",
            "aten.hypot.default",
            "aten.hypot.out",
            "aten.hypot_.default",
            "aten.pow.Scalar",
            "aten.pow.Scalar_out",
            "aten.pow.Tensor_Scalar",
            "aten.pow.Tensor_Scalar_out",
            "aten.pow.Tensor_Tensor",
            "aten.pow.Tensor_Tensor_out",
            "aten.pow_.Scalar",
            "aten.pow_.Tensor",
            "aten.reciprocal.default",
            "aten.reciprocal.out",
            "aten.reciprocal_.default",
            "aten.square.default",
            "aten.square.out",
            "aten.square_.default",
            "prims.hypot.default",
            "prims.reciprocal.default",
        ],
        pointwise(),
    ),
)

ROUNDINGS = Family(
    "floor(0.5 + 0.5) = 1, floor(0.5) + floor(0.5) = 0",
    claim(
        [
            "aten.div.Scalar_mode",
            "aten.div.Tensor_mode",
            "aten.div.out_mode",
            "aten.div_.Scalar_mode",
            "aten.div_.Tensor_mode",
            "aten.fmod.Scalar",
            "aten.fmod.Scalar_out",
            "aten.fmod.Tensor",
            "aten.fmod.Tensor_out",
            "aten.fmod_.Scalar",
            "aten.fmod_.Tensor",
            "aten.frac.default",
            "aten.frac.out",
            "aten.frac_.default",
            "aten.nextafter.default",
            "aten.nextafter.out",
            "aten.nextafter_.default",
            "aten.remainder.Scalar",
            "aten.remainder.Scalar_Tensor",
            "aten.remainder.Scalar_out",
            "aten.remainder.Tensor",
            "aten.remainder.Tensor_out",
            "aten.remainder_.Scalar",
            "aten.remainder_.Tensor",
            "prims.nextafter.default",
        ],
        pointwise(),
    ),
)

SIGNS = Family(
    "abs(1 - 1) = 0, abs(1) + abs(-1) = 2",
    claim(
        [
            "aten.abs.default",
            "aten.abs.out",
            "aten.abs_.default",
            "aten.angle.default",
            "aten.angle.out",
            "aten.copysign.Scalar",
            "aten.copysign.Scalar_out",
            "aten.copysign.Tensor",
            "aten.copysign.out",
            "aten.copysign_.Scalar",
            "aten.copysign_.Tensor",
            "aten.sgn.default",
            "aten.sgn.out",
            "aten.sgn_.default",
            "aten.sign.default",
            "aten.sign.out",
            "aten.sign_.default",
            "prims.abs.default",
            "prims.sign.default",
        ],
        pointwise(),
    ),
)

TRIGONOMETRY = Family(
    "sin(a + b) = sin(a) * cos(b) + cos(a) * sin(b)",
    claim(
        [
            "aten.acos.default",
            "aten.acos.out",
            "aten.acos_.default",
            "aten.acosh.default",
            "aten.acosh.out",
            "aten.acosh_.default",
            "aten.asin.default",
            "aten.asin.out",
            "aten.asin_.default",
            "aten.atan2.default",
            "aten.atan2.out",
            "aten.atan2_.default",
            "aten.atanh.default",
            "aten.atanh.out",
            "aten.atanh_.default",
            "aten.cos.default",
            "aten.cos.out",
            "aten.cos_.default",
            "aten.cosh.default",
            "aten.cosh.out",
            "aten.cosh_.default",
            "aten.sin.default",
            "aten.sin.out",
            "aten.sin_.default",
            "aten.sinc.default",
            "aten.sinc.out",
            "aten.sinc_.default",
            "aten.tan.default",
            "aten.tan.out",
            "aten.tan_.default",
        ],
        pointwise(),
    ),
)
