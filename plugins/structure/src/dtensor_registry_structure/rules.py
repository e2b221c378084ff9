"""Which op has which rule: the table, alphabetical by op."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dtensor_registry import SchemaInfo, SingleDimStrategy, passthrough, reduction
from dtensor_registry_structure import bags, copies, distances, planes, samples, scatter
from dtensor_registry_structure.arguments import ByName
from dtensor_registry_structure.planes import Planes

# What a new tensor is filled with does not matter to where it is, and may change at every step.
_NO_FILL_VALUE = SchemaInfo(
    static_kwargkey=("device", "dtype", "layout", "memory_format", "pin_memory")
)


def _planes(op: str, spatial: int, *, variants: bool = True) -> SingleDimStrategy:
    name = op.removesuffix(f"{spatial}d_backward").removeprefix("_")
    return SingleDimStrategy(
        f"aten.{op}.default",
        Planes(spatial),
        variants=variants,
        samples=partial(samples.planes, spatial, name),
    )


def _table() -> Iterator[SingleDimStrategy]:
    yield _planes("_adaptive_avg_pool3d_backward", 3, variants=False)
    yield SingleDimStrategy(
        "aten._cdist_backward.default",
        ByName(distances.cdist_backward_rows),
        samples=samples.cdist_backward,
    )
    yield SingleDimStrategy(
        "aten._cdist_forward.default", ByName(distances.cdist_rows), samples=samples.cdist
    )
    yield SingleDimStrategy(
        # Not `_embedding_bag_forward_only`: its fake kernel tells another shape than the CPU's.
        "aten._embedding_bag.default",
        ByName(bags.embedding_bag_rows),
        samples=samples.bags,
    )
    yield SingleDimStrategy(
        "aten._embedding_bag_backward.default",
        ByName(bags.embedding_bag_backward_rows),
        samples=samples.bags_backward,
    )
    yield SingleDimStrategy(
        "aten._embedding_bag_dense_backward.default",
        ByName(bags.embedding_bag_dense_backward_rows),
        samples=samples.bags_dense_backward,
    )
    yield SingleDimStrategy(
        "aten._embedding_bag_per_sample_weights_backward.default",
        ByName(bags.embedding_bag_scales_backward_rows),
        samples=samples.bags_scales_backward,
    )
    yield SingleDimStrategy("aten._is_all_true.default", reduction(None, None, "all"))
    yield SingleDimStrategy("aten._is_any_true.default", reduction(None, None, "any"))
    yield SingleDimStrategy(
        "aten._pdist_backward.default",
        distances.PDIST_BACKWARD,
        aliases={"grad": "grad_output"},  # the name since torch 2.14
        samples=samples.pdist_backward,
    )
    yield SingleDimStrategy(
        "aten._pdist_forward.default", ByName(distances.pdist_rows), samples=samples.pdist
    )
    yield SingleDimStrategy(
        "aten._segment_reduce_backward.default",
        ByName(scatter.segment_reduce_backward_rows),
        samples=samples.segments_backward,
    )
    yield SingleDimStrategy(
        "aten._weight_norm_interface_backward.default",
        ByName(planes.weight_norm_backward_rows),
        allow_empty_pieces=False,
        samples=samples.weight_norm,
    )
    yield _planes("adaptive_max_pool2d_backward", 2)
    yield _planes("adaptive_max_pool3d_backward", 3)
    yield SingleDimStrategy(
        ["aten.alias_copy.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default"],
        passthrough(),
    )
    yield _planes("avg_pool2d_backward", 2)
    yield _planes("avg_pool3d_backward", 3)
    yield SingleDimStrategy(
        "aten.bincount.default", ByName(distances.bincount_rows), samples=samples.counts
    )
    yield SingleDimStrategy("aten.copy.default", ByName(copies.copy_rows), samples=samples.copies)
    yield SingleDimStrategy(
        [
            "aten.empty_like.default",
            "aten.full_like.default",
            "aten.ones_like.default",
            "aten.zeros_like.default",
        ],
        copies.new_like_rows,
        schema_info=_NO_FILL_VALUE,
        allow_uneven_sharding=True,
    )
    yield SingleDimStrategy("aten.equal.default", ByName(copies.equal_rows))
    yield SingleDimStrategy(
        "aten.histogram.bin_ct",
        ByName(distances.histogram_rows),
        samples=samples.histograms_by_range,
    )
    yield SingleDimStrategy(
        "aten.histogram.bins_tensor",
        ByName(distances.histogram_rows),
        samples=samples.histograms_by_edges,
    )
    yield _planes("max_pool3d_with_indices_backward", 3)
    yield SingleDimStrategy(
        "aten.multi_margin_loss_backward.default",
        ByName(planes.multi_margin_loss_backward_rows),
        variants=True,
        samples=samples.multi_margin,
    )
    yield SingleDimStrategy(
        "aten.multilabel_margin_loss_backward.default",
        ByName(planes.multilabel_margin_loss_backward_rows),
        variants=True,
        samples=samples.multilabel_margin,
    )
    yield SingleDimStrategy(
        "aten.put.default", ByName(copies.put_rows), variants=True, samples=samples.puts
    )
    yield _planes("replication_pad1d_backward", 1)
    yield _planes("replication_pad2d_backward", 2)
    yield _planes("replication_pad3d_backward", 3)
    yield SingleDimStrategy(
        "aten.scatter.reduce",
        ByName(scatter.scatter_reduce_rows),
        variants=True,
        samples=samples.old_scatters,
    )
    yield SingleDimStrategy(
        "aten.scatter.value_reduce",
        ByName(scatter.scatter_reduce_rows),
        variants=True,
        samples=samples.old_number_scatters,
    )
    yield SingleDimStrategy(
        "aten.scatter_reduce.two",
        ByName(scatter.scatter_reduce_rows),
        variants=True,
        samples=samples.reduced_scatters,
    )
    yield SingleDimStrategy(
        "aten.searchsorted.Tensor",
        ByName(distances.searchsorted_rows),
        variants=True,
        samples=samples.searching,
    )
    yield SingleDimStrategy(
        "aten.segment_reduce.default",
        ByName(scatter.segment_reduce_rows),
        samples=samples.segments,
    )
    yield SingleDimStrategy(
        "aten.select_scatter.default",
        ByName(copies.select_scatter_rows),
        samples=samples.written_at,
    )
    yield SingleDimStrategy(
        "aten.slice_scatter.default",
        ByName(copies.slice_scatter_rows),
        samples=samples.written,
    )


STRATEGIES = tuple(_table())
