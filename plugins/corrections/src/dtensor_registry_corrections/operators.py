"""Operators that torch takes for writes, since their names end with an underscore.

torch gives back the first operand of an op named so, unchanged, as if it had been written to:
`x << 2` is `x`. A rule of ours is run by the host, which goes by the schema.
"""

from __future__ import annotations

from dtensor_registry import SingleDimStrategy, pointwise

OPERATORS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        [
            "aten.__lshift__.Scalar",
            "aten.__lshift__.Tensor",
            "aten.__rshift__.Scalar",
            "aten.__rshift__.Tensor",
            "aten.__xor__.Scalar",
            "aten.__xor__.Tensor",
        ],
        pointwise(),
    ),
)
