"""The families of this plugin by name, and the pointwise ops that none of them claims.

A table lists every overload of its ops that torch 2.13 tags as pointwise, and some that it does
not (`UNTAGGED`), alphabetically. A
name that another torch lacks is no error: the host shows it as pending.
"""

from __future__ import annotations

from dtensor_registry_pointwise import elementary, linear, logic, monotone, special
from dtensor_registry_pointwise.families import Family

FAMILIES: dict[str, Family] = {
    "activations": elementary.ACTIVATIONS,
    "additive": linear.ADDITIVE,
    "bessel": special.BESSEL,
    "bits": logic.BITS,
    "blends": linear.BLENDS,
    "casts": elementary.CASTS,
    "classifications": logic.CLASSIFICATIONS,
    "comparisons": logic.COMPARISONS,
    "constants": monotone.CONSTANT,
    "copies": linear.COPIES,
    "error functions": special.ERROR_FUNCTIONS,
    "exponentials": elementary.EXPONENTIALS,
    "extremes": elementary.EXTREMES,
    "falling": monotone.FALLING,
    "falling above a number": monotone.FALLING_ABOVE,
    "fills": linear.FILLS,
    "flips": linear.FLIPS,
    "float parts": elementary.FLOAT_PARTS,
    "gamma": special.GAMMA,
    "gradients": linear.GRADIENTS,
    "integers": elementary.INTEGERS,
    "largest": monotone.LARGEST,
    "largest numbers": monotone.LARGEST_NUMBERS,
    "largest, written": monotone.LARGEST_WRITTEN,
    "logarithms of sums": monotone.LOG_SUMS,
    "logic": logic.LOGIC,
    "negations": linear.NEGATIONS,
    "offsets": linear.OFFSETS,
    "polynomials": special.POLYNOMIALS,
    "powers": elementary.POWERS,
    "product sums": linear.PRODUCT_SUMS,
    "products": linear.PRODUCTS,
    "quotients": linear.QUOTIENTS,
    "rising": monotone.RISING,
    "rising above a number": monotone.RISING_ABOVE,
    "roundings": elementary.ROUNDINGS,
    "selections": linear.SELECTIONS,
    "signs": elementary.SIGNS,
    "smallest": monotone.SMALLEST,
    "smallest numbers": monotone.SMALLEST_NUMBERS,
    "smallest, written": monotone.SMALLEST_WRITTEN,
    "trigonometry": elementary.TRIGONOMETRY,
    "unary linear": linear.UNARY,
}

UNTAGGED = (
    "aten.abs_.default",
    "aten.copysign_.Scalar",
    "aten.copysign_.Tensor",
    "aten.elu_backward.default",
    "aten.elu_backward.grad_input",
    "aten.fill_.Scalar",
    "aten.fill_.Tensor",
    "aten.hardshrink_backward.default",
    "aten.hardshrink_backward.grad_input",
    "aten.hardsigmoid_backward.default",
    "aten.hardsigmoid_backward.grad_input",
    "aten.hardswish.default",
    "aten.hardswish.out",
    "aten.hardswish_.default",
    "aten.hardswish_backward.default",
    "aten.hardtanh_backward.default",
    "aten.hardtanh_backward.grad_input",
    "aten.leaky_relu_backward.default",
    "aten.leaky_relu_backward.grad_input",
    "aten.masked_fill_.Scalar",
    "aten.mish_backward.default",
    "aten.softplus_backward.default",
    "aten.softplus_backward.grad_input",
    "aten.softshrink_backward.default",
    "aten.softshrink_backward.grad_input",
    "aten.where.self_out",
    "aten.xlogy_.Scalar_Other",
)
"""Overloads that torch 2.13 does not tag as pointwise, and that are."""

NOT_CLAIMED = {
    "aten.equal.default": "returns one bool of all elements; dtensor-registry-structure has it",
    "aten.rrelu.default": "draws random numbers, which each rank would draw for itself",
    "prims.fma.default": "comes with torch._inductor, which then registers a rule of its own",
}
"""Overloads that torch tags as pointwise and that have no row for all that, with the reason."""
