"""The families of this plugin by name, and the pointwise ops that none of them claims.

A table lists every overload of its ops that torch 2.13 tags as pointwise, alphabetically. A
name that another torch lacks is no error: the host shows it as pending.
"""

from __future__ import annotations

from dtensor_registry_pointwise import elementary, linear, logic, special
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
    "error functions": special.ERROR_FUNCTIONS,
    "exponentials": elementary.EXPONENTIALS,
    "extremes": elementary.EXTREMES,
    "fills": linear.FILLS,
    "float parts": elementary.FLOAT_PARTS,
    "gamma": special.GAMMA,
    "gradients": linear.GRADIENTS,
    "integers": elementary.INTEGERS,
    "logic": logic.LOGIC,
    "offsets": linear.OFFSETS,
    "polynomials": special.POLYNOMIALS,
    "powers": elementary.POWERS,
    "product sums": linear.PRODUCT_SUMS,
    "products": linear.PRODUCTS,
    "quotients": linear.QUOTIENTS,
    "roundings": elementary.ROUNDINGS,
    "selections": linear.SELECTIONS,
    "signs": elementary.SIGNS,
    "trigonometry": elementary.TRIGONOMETRY,
    "unary linear": linear.UNARY,
}

NOT_CLAIMED = {
    "aten.equal.default": "returns one bool, which depends on every element: no dim is separate",
    "aten.rrelu.default": "draws random numbers, which each rank would draw for itself",
    "prims.fma.default": "comes with torch._inductor, which then registers a rule of its own",
}
"""Overloads that torch tags as pointwise and that have no row for all that, with the reason."""
