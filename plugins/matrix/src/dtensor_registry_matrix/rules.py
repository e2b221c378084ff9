"""Which aten op computes which product: the table, alphabetical by op.

Each overload is named, since torch keeps functional, in-place and `out=` forms apart. The
equations are those of the formulas in the documentation of `torch.addbmm`, `torch.mm` and
so on. `vdot` conjugates its first operand, which leaves it additive.
"""

from __future__ import annotations

from dtensor_registry import SchemaInfo, SingleDimStrategy, einsum
from dtensor_registry_matrix.bias import Biased, addmv_rows, linear_rows

# No row depends on alpha or beta. In the cache key, each new value would cost a propagation,
# and a complex one cannot be hashed. Where an `out` lies does decide, so it is in the key.
_NO_SCALARS = SchemaInfo(static_kwargkey=("out",))

STRATEGIES = (
    SingleDimStrategy(
        ["aten.addbmm.default", "aten.addbmm.out", "aten.addbmm_.default"],
        Biased("bmk,bkn->mn"),
        schema_info=_NO_SCALARS,
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.addmm.default", "aten.addmm.out", "aten.addmm_.default"],
        Biased("mk,kn->mn"),
        schema_info=_NO_SCALARS,
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.addmv.default", "aten.addmv.out", "aten.addmv_.default"],
        addmv_rows,
        schema_info=_NO_SCALARS,
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.baddbmm.default", "aten.baddbmm.out", "aten.baddbmm_.default"],
        Biased("bmk,bkn->bmn"),
        schema_info=_NO_SCALARS,
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.bmm.default", "aten.bmm.out"],
        einsum("bmk,bkn->bmn"),
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.dot.default", "aten.dot.out"],
        einsum("k,k->"),
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.linear.default", "aten.linear.out"],
        linear_rows,
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.mm.default", "aten.mm.out"],
        einsum("mk,kn->mn"),
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.mv.default", "aten.mv.out"],
        einsum("mk,k->m"),
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.vdot.default", "aten.vdot.out"],
        einsum("k,k->"),
        allow_unbacked_sharding=True,
    ),
)
