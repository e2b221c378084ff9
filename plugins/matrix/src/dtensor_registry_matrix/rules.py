"""Which aten op computes which product: the table, alphabetical by op.

Each overload is named, since torch keeps functional, in-place and `out=` forms apart. The
equations are those of the formulas in the documentation of `torch.addbmm`, `torch.mm` and
so on. `vdot` conjugates its first operand, which leaves it additive.
"""

from __future__ import annotations

from dtensor_registry import SchemaInfo, SingleDimStrategy, einsum
from dtensor_registry_matrix import attention, lent_kernel, products, samples
from dtensor_registry_matrix.bias import Biased, addmv_rows, linear_rows

# No row depends on alpha or beta. In the cache key, each new value would cost a propagation,
# and a complex one cannot be hashed. Where an `out` lies does decide, so it is in the key.
_NO_SCALARS = SchemaInfo(static_kwargkey=("out",))

STRATEGIES = (
    SingleDimStrategy(
        "aten._int_mm.default",
        # A partial operand of 8 bits would wrap around where its terms are added up.
        einsum("mk,kn->mn", linearity=False),
        samples=samples.int_mm,
    ),
    SingleDimStrategy(
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        attention.attention_for_cpu_rows,
        allow_empty_pieces=False,  # its kernel divides by the number of heads
        random=attention.for_cpu_drops,
        samples=samples.attention,
    ),
    SingleDimStrategy(
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        attention.attention_for_cpu_backward_rows,
        allow_empty_pieces=False,
        samples=samples.attention_backward,
    ),
    SingleDimStrategy(
        "aten._scaled_dot_product_fused_attention_overrideable.default",
        attention.fused_attention_rows,
        random=attention.fused_drops,
        samples=lent_kernel.fused_attention,
    ),
    SingleDimStrategy(
        "aten._scaled_dot_product_fused_attention_overrideable_backward.default",
        attention.fused_attention_backward_rows,
        samples=lent_kernel.fused_attention_backward,
    ),
    SingleDimStrategy(
        "aten._scaled_mm.default", products.scaled_mm_rows, samples=samples.scaled_mm
    ),
    SingleDimStrategy(
        "aten._trilinear.default", products.trilinear_rows, samples=samples.trilinear
    ),
    SingleDimStrategy(
        ["aten.addbmm.default", "aten.addbmm.out", "aten.addbmm_.default"],
        Biased("bmk,bkn->mn", averages=True),
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
        ["aten.addr.default", "aten.addr.out", "aten.addr_.default"],
        Biased("m,n->mn", averages=True),
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
        ["aten.ger.default", "aten.ger.out"],
        einsum("m,n->mn"),
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.linear.default", "aten.linear.out"],
        linear_rows,
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.matmul.default", "aten.matmul.out"],
        products.matmul_rows,
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
        ["aten.outer.default", "aten.outer.out"],
        einsum("m,n->mn"),
        allow_unbacked_sharding=True,
    ),
    SingleDimStrategy(
        ["aten.vdot.default", "aten.vdot.out"],
        einsum("k,k->"),
        allow_unbacked_sharding=True,
    ),
)
