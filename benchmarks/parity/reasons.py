"""Why something is not the same as on bare torch, by the name of a program or call."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "attention-batch-and-heads": "torch 2.13 has no rule for attention on a CPU; `matrix` has",
    "net-multihead-attention": "bare torch takes minutes for a decomposition; `matrix` has a rule",
    "net-pooling": "no rule of torch's for the backward of average pooling",
    "net-activations": "no rule of torch's for the backward of hardswish",
    "net-conv*": "torch's handler takes a piece of the input for the whole",
    "loss-*": "torch takes the mean over each piece, and averages these",
    "cache-*": "a slice of a cut dim is a moved copy; the host writes back to the tensor",
    "write-assign-*": "no rule of torch's for `fill_` with a tensor",
    "write-*": "a view of a cut dim is a moved copy; the host writes back to the tensor",
    "order-*sum": "an op on a tensor cut in another order brings it to the ordinary one first",
    "order-*": "rules of torch's take placements for the place, and forget the order of the cuts",
    "clip-grad-norm-foreach": "largest norm: rows of torch's for norms of partials are left out",
    "LBFGS-loop-R": "reads numbers of pending sums: a warning here, silence on bare torch",
    "aten.im2col.default/*": "no rule; the fallback gathers",
    "aten.tril.out/*": "no rule; the fallback gathers",
    "aten.cross.out/*": "torch finds no row for what is given; the host moves the tensors",
    "aten.scatter_add_.default/*": "torch adds a whole value to each addend; refused by name",
    "partial-*fill*": "torch fills every addend with the sum",
    "partial-empty-like-P": "torch fills every addend with the sum",
}
"""The first glob that fits is the reason."""
