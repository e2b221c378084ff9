"""Operators that torch takes for writes, since their names end with an underscore.

torch gives back the first operand of an op named so, unchanged, as if it had been written to:
`x << 2` is `x`. A rule of ours is run by the host, which goes by the schema.
"""

from __future__ import annotations

from dtensor_registry import Counterexample, Held, SingleDimStrategy, pointwise

_UNCHANGED = "the first operand is given back, as if the op had written to it"
_SHIFTS = [
    f"aten.__{name}__.{form}" for name in ("lshift", "rshift") for form in ("Scalar", "Tensor")
]

OPERATORS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        _SHIFTS,
        pointwise(),
        shows=tuple(
            Counterexample("S(0)", (Held("int64", (2,)), 1), op=op, because=_UNCHANGED)
            if op.endswith("Scalar")
            else Counterexample(
                "S(0), S(0)",
                (Held("int64", (2,)), Held("int64", [1, 3])),
                op=op,
                because=_UNCHANGED,
            )
            for op in _SHIFTS
        ),
    ),
)
