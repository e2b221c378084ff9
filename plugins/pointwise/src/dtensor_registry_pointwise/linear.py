"""Ops that are linear in some of their arguments, so that partial sums and averages pass.

An identity holds for the arguments that `linear` groups, with the others fixed. What
is multiplied by a fixed argument (or divided, by 0) must stay finite, as in any sum that is
taken apart: `(2 - 1) * inf` is infinite and `2 * inf - 1 * inf` is not a number. torch's own
rules for mul and div assume the same.
"""

from __future__ import annotations

from dtensor_registry import passthrough, pointwise
from dtensor_registry_pointwise.families import Family, claim

ADDITIVE = Family(
    "f(x, y) = x + alpha * y: f(a + c, b + d) = f(a, b) + f(c, d)",
    claim(
        [
            "aten.add.Scalar",
            "aten.add.Tensor",
            "aten.add.out",
            "aten.add_.Scalar",
            "aten.add_.Tensor",
            "aten.sub.Scalar",
            "aten.sub.Tensor",
            "aten.sub.out",
            "aten.sub_.Scalar",
            "aten.sub_.Tensor",
        ],
        pointwise(linear=[(0, 1)], monotone={0: "up"}, wraps=True),
    ),
)

BLENDS = Family(
    "f(x, y) = (1 - w) * x + w * y: f(a + c, b + d) = f(a, b) + f(c, d)",
    claim(
        [
            "aten.lerp.Scalar",
            "aten.lerp.Scalar_out",
            "aten.lerp.Tensor",
            "aten.lerp.Tensor_out",
            "aten.lerp_.Scalar",
            "aten.lerp_.Tensor",
        ],
        pointwise(linear=[(0, 1)]),
    ),
)

COPIES = Family(
    "f(x) = x: f(a + c) = f(a) + f(c), f(max(a, b)) = max(f(a), f(b)), ...",
    claim(
        [
            "aten.clone.default",
            "aten.positive.default",
        ],
        passthrough(),
    ),
)

FILLS = Family(
    "f(x, v) = v where m, else x: f(a + c, u + v) = f(a, u) + f(c, v)",
    claim(
        [
            "aten.masked_fill.Scalar",
            "aten.masked_fill_.Scalar",
        ],
        pointwise(linear=[(0, 2)], monotone={0: "up"}),
    ),
)

FLIPS = Family(
    "f(x) = y - k * x: f(a + c, b + d) = f(a, b) + f(c, d)",
    claim(
        [
            "aten.rsub.Scalar",
        ],
        pointwise(linear=[(0, 1)]),
    ),
)

GRADIENTS = Family(
    "f(g, x) = g * h(x): f(a + c, x) = f(a, x) + f(c, x)",
    claim(
        [
            "aten.elu_backward.default",
            "aten.elu_backward.grad_input",
            "aten.gelu_backward.default",
            "aten.hardshrink_backward.default",
            "aten.hardshrink_backward.grad_input",
            "aten.hardsigmoid_backward.default",
            "aten.hardsigmoid_backward.grad_input",
            "aten.hardswish_backward.default",
            "aten.hardtanh_backward.default",
            "aten.hardtanh_backward.grad_input",
            "aten.leaky_relu_backward.default",
            "aten.leaky_relu_backward.grad_input",
            "aten.logit_backward.default",
            "aten.logit_backward.grad_input",
            "aten.mish_backward.default",
            "aten.native_dropout_backward.default",
            "aten.sigmoid_backward.default",
            "aten.sigmoid_backward.grad_input",
            "aten.silu_backward.default",
            "aten.silu_backward.grad_input",
            "aten.softplus_backward.default",
            "aten.softplus_backward.grad_input",
            "aten.softshrink_backward.default",
            "aten.softshrink_backward.grad_input",
            "aten.tanh_backward.default",
            "aten.tanh_backward.grad_input",
            "aten.threshold_backward.default",
        ],
        pointwise(linear=[(0,)], out=["grad_input"]),
    ),
)

NEGATIONS = Family(
    "f(x) = -x: f(a + c) = f(a) + f(c), f(max(a, b)) = min(f(a), f(b))",
    claim(
        [
            "aten.neg.default",
            "aten.neg.out",
            "aten.neg_.default",
        ],
        pointwise(linear=[(0,)], monotone={0: "down"}, wraps=True),
    ),
)

OFFSETS = Family(
    "f(x, y) = x + v * y / z: f(a + c, b + d) = f(a, b) + f(c, d)",
    claim(
        [
            "aten.addcdiv.default",
            "aten.addcdiv.out",
            "aten.addcdiv_.default",
        ],
        pointwise(linear=[(0, 1)], monotone={0: "up"}, wraps=True),
    ),
)

PRODUCTS = Family(
    "f(x, y) = x * y: f(a + c, y) = f(a, y) + f(c, y), f(x, b + d) = f(x, b) + f(x, d)",
    claim(
        [
            "aten.mul.Scalar",
            "aten.mul.Tensor",
            "aten.mul.out",
            "aten.mul_.Scalar",
            "aten.mul_.Tensor",
        ],
        pointwise(linear=[(0,), (1,)]),
    ),
)

PRODUCT_SUMS = Family(
    "f(x, y, z) = x + v * y * z: linear in (x, y) for fixed z, and in (x, z) for fixed y",
    claim(
        [
            "aten.addcmul.default",
            "aten.addcmul.out",
            "aten.addcmul_.default",
        ],
        pointwise(linear=[(0, 1), (0, 2)], monotone={0: "up"}, wraps=True),
    ),
)

QUOTIENTS = Family(
    "f(x, y) = x / y or x * 2**y: f(a + c, y) = f(a, y) + f(c, y)",
    claim(
        [
            "aten.div.Scalar",
            "aten.div.Tensor",
            "aten.div.out",
            "aten.div_.Scalar",
            "aten.div_.Tensor",
            "aten.ldexp.Tensor",
            "aten.ldexp.out",
            "aten.ldexp_.default",
            "aten.true_divide.Tensor",
        ],
        pointwise(linear=[(0,)]),
    ),
)

SELECTIONS = Family(
    "f(x, y) = x where m, else y: f(a + c, b + d) = f(a, b) + f(c, d)",
    claim(
        [
            "aten.where.self",
            "aten.where.self_out",
        ],
        pointwise(linear=[(1, 2)], jointly={"max": (1, 2), "min": (1, 2)}),
    ),
)

UNARY = Family(
    "f(x) = k * x or conj(x): f(a + c) = f(a) + f(c)",
    claim(
        [
            "aten._conj_physical.default",
            "aten.conj_physical.default",
            "aten.conj_physical.out",
            "aten.conj_physical_.default",
            "aten.deg2rad.default",
            "aten.deg2rad.out",
            "aten.deg2rad_.default",
            "aten.rad2deg.default",
            "aten.rad2deg.out",
            "aten.rad2deg_.default",
            "prims.conj_physical.default",
        ],
        pointwise(linear=[(0,)], monotone={0: "up"}),
    ),
)
