"""Ops that never fall, or never rise, in some of their arguments: maxima and minima pass.

What is not a number stays none in them. `fmax`, `fmin`, `nan_to_num` and `sign` pass over it, so
that little of them is here, and nothing of what depends on a number of the call (`threshold`,
`leaky_relu`). A maximum passes through one argument beside a whole one only where the op rises
without end: where two ranks may give the same (`max(x, y)` where y is larger) both would send a
gradient to the whole one; forms with `out` have none to send. `log` has gradients where it is
not defined, which a minimum would not get right.
"""

from __future__ import annotations

from dtensor_registry import pointwise
from dtensor_registry_pointwise.families import Family, claim

FALLING = Family(
    "f(max(a, b)) = min(f(a), f(b)): f never rises",
    claim(
        [
            "aten.erfc.default",
            "aten.erfc.out",
            "aten.erfc_.default",
            "aten.special_erfcx.default",
            "aten.special_erfcx.out",
        ],
        pointwise(monotone={0: "down"}),
    ),
)

FALLING_ABOVE = Family(
    "f(min(a, b)) = max(f(a), f(b)) where f is defined; addends of a maximum may lie below",
    claim(
        [
            "aten.rsqrt.default",
            "aten.rsqrt.out",
            "aten.rsqrt_.default",
            "aten.special_modified_bessel_k0.default",
            "aten.special_modified_bessel_k0.out",
            "aten.special_modified_bessel_k1.default",
            "aten.special_modified_bessel_k1.out",
            "aten.special_scaled_modified_bessel_k0.default",
            "aten.special_scaled_modified_bessel_k0.out",
            "aten.special_scaled_modified_bessel_k1.default",
            "aten.special_scaled_modified_bessel_k1.out",
            "prims.rsqrt.default",
        ],
        pointwise(monotone={0: "down above"}),
    ),
)

LARGEST = Family(
    "f(x, y) = max(x, y): f(max(a, b), max(c, d)) = max(f(a, c), f(b, d))",
    claim(
        [
            "aten.clamp_min.Tensor",
            "aten.clamp_min_.Tensor",
            "aten.max.other",
            "aten.maximum.default",
            "prims.maximum.default",
        ],
        pointwise(jointly={"max": (0, 1)}),
    ),
)

LARGEST_NUMBERS = Family(
    "f(x, y) = max(x, y) or the one that is a number: f(min(a, b), y) = min(f(a, y), f(b, y))",
    claim(
        [
            "aten.fmax.out",
            "prims.fmax.default",
        ],
        pointwise(monotone={0: "up above", 1: "up above"}),
    ),
)

LARGEST_WRITTEN = Family(
    "f(x, y) = max(x, y), without a gradient: f(max(a, b), y) = max(f(a, y), f(b, y))",
    claim(
        [
            "aten.clamp_min.Tensor_out",
            "aten.max.out",
            "aten.maximum.out",
        ],
        pointwise(monotone={0: "up", 1: "up"}, jointly={"max": (0, 1)}),
    ),
)

CONSTANT = Family(
    "f(max(a, b)) = f(a) = f(b), while f(a + b) = f(a): f hangs on nothing",
    claim(
        [
            "aten.fill_.Scalar",
            "aten.fill_.Tensor",
        ],
        pointwise(monotone={0: "up"}),
    ),
)

LOG_SUMS = Family(
    "f(max(a, b), y) = max(f(a, y), f(b, y)): f never falls in x nor in y",
    claim(
        [
            "aten.logaddexp.default",
            "aten.logaddexp.out",
            "aten.logaddexp2.default",
            "aten.logaddexp2.out",
        ],
        pointwise(monotone={0: "up", 1: "up"}),
    ),
)

RISING = Family(
    "f(max(a, b)) = max(f(a), f(b)): f never falls",
    claim(
        [
            "aten.asinh.default",
            "aten.asinh.out",
            "aten.asinh_.default",
            "aten.atan.default",
            "aten.atan.out",
            "aten.atan_.default",
            "aten.ceil.default",
            "aten.ceil.out",
            "aten.ceil_.default",
            "aten.clamp.default",
            "aten.clamp.out",
            "aten.clamp_.default",
            "aten.clamp_max.default",
            "aten.clamp_max.out",
            "aten.clamp_max_.default",
            "aten.clamp_min.default",
            "aten.clamp_min.out",
            "aten.clamp_min_.default",
            "aten.clip.default",
            "aten.clip.out",
            "aten.clip_.default",
            "aten.erf.default",
            "aten.erf.out",
            "aten.erf_.default",
            "aten.exp.default",
            "aten.exp.out",
            "aten.exp2.default",
            "aten.exp2.out",
            "aten.exp2_.default",
            "aten.exp_.default",
            "aten.expm1.default",
            "aten.expm1.out",
            "aten.expm1_.default",
            "aten.floor.default",
            "aten.floor.out",
            "aten.floor_.default",
            "aten.hardshrink.default",
            "aten.hardsigmoid.default",
            "aten.hardsigmoid_.default",
            "aten.hardtanh.default",
            "aten.hardtanh_.default",
            "aten.relu.default",
            "aten.relu6.default",
            "aten.relu_.default",
            "aten.round.decimals",
            "aten.round.decimals_out",
            "aten.round.default",
            "aten.round.out",
            "aten.round_.decimals",
            "aten.round_.default",
            "aten.selu.default",
            "aten.selu_.default",
            "aten.sigmoid.default",
            "aten.sigmoid.out",
            "aten.sigmoid_.default",
            "aten.sinh.default",
            "aten.sinh.out",
            "aten.sinh_.default",
            "aten.softshrink.default",
            "aten.special_i1.default",
            "aten.special_i1.out",
            "aten.special_log_ndtr.default",
            "aten.special_log_ndtr.out",
            "aten.special_modified_bessel_i1.default",
            "aten.special_modified_bessel_i1.out",
            "aten.tanh.default",
            "aten.tanh.out",
            "aten.tanh_.default",
            "aten.trunc.default",
            "aten.trunc.out",
            "aten.trunc_.default",
            "prims.exp2.default",
            "prims.trunc.default",
        ],
        pointwise(monotone={0: "up"}),
    ),
)

RISING_ABOVE = Family(
    "f(min(a, b)) = min(f(a), f(b)) where f is defined; addends of a maximum may lie below",
    claim(
        [
            "aten.sqrt.default",
            "aten.sqrt.out",
            "aten.sqrt_.default",
        ],
        pointwise(monotone={0: "up above"}),
    ),
)

SMALLEST = Family(
    "f(x, y) = min(x, y): f(min(a, b), min(c, d)) = min(f(a, c), f(b, d))",
    claim(
        [
            "aten.clamp_max.Tensor",
            "aten.clamp_max_.Tensor",
            "aten.min.other",
            "aten.minimum.default",
            "prims.minimum.default",
        ],
        pointwise(jointly={"min": (0, 1)}),
    ),
)

SMALLEST_NUMBERS = Family(
    "f(x, y) = min(x, y) or the one that is a number: f(max(a, b), y) = max(f(a, y), f(b, y))",
    claim(
        [
            "aten.fmin.out",
            "prims.fmin.default",
        ],
        pointwise(monotone={0: "up below", 1: "up below"}),
    ),
)

SMALLEST_WRITTEN = Family(
    "f(x, y) = min(x, y), without a gradient: f(max(a, b), y) = max(f(a, y), f(b, y))",
    claim(
        [
            "aten.clamp_max.Tensor_out",
            "aten.min.out",
            "aten.minimum.out",
        ],
        pointwise(monotone={0: "up", 1: "up"}, jointly={"min": (0, 1)}),
    ),
)
