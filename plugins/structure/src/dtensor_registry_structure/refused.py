"""Everyday ops of which no sharded form exists, and why: no rule could be right."""

from __future__ import annotations

_LENGTH = "how long the result is depends on the numbers in it, so no rank knows its share"
_ORDER = "each place in the result depends on all elements before it"
_RANDOM = "draws random numbers, which each rank would draw for itself"
_RESHAPES = "changes the shape of a tensor in place, which no placement survives"
_WHERE = "which element is taken depends on how many were before it, on other ranks too"

REFUSED: dict[str, str] = {
    "aten._ctc_loss.Tensor": "its second result is as long as the longest target of the batch",
    "aten._ctc_loss.default": "has the lengths of the batch as numbers of the call, which a rank"
    " cannot cut",
    "aten._ctc_loss_backward.Tensor": "has the second result of the forward op among its arguments",
    "aten._pack_padded_sequence.default": _LENGTH,
    "aten._unique2.default": _LENGTH,
    "aten.as_strided_.default": _RESHAPES,
    "aten.bernoulli.Tensor": _RANDOM,
    "aten.bernoulli.p": _RANDOM,
    "aten.binomial.default": _RANDOM,
    "aten.embedding_renorm_.default": "indices count rows of the whole table, a norm needs whole"
    " rows",
    "aten.linalg_lstsq.default": "gives residuals only if every matrix of the batch has full rank",
    "aten.masked_scatter.default": _WHERE,
    "aten.masked_scatter_.default": _WHERE,
    "aten.masked_scatter_backward.default": _WHERE,
    "aten.masked_select.default": _LENGTH,
    "aten.nonzero.default": _LENGTH,
    "aten.nonzero_static.default": _ORDER,
    "aten.poisson.default": _RANDOM,
    "aten.randperm.default": "is a permutation of all numbers, of which no part is one",
    "aten.repeat_interleave.Tensor": _LENGTH,
    "aten.resize_.default": _RESHAPES,
    "aten.searchsorted.Scalar": "looks one number up: counts of parts add up only if the sequence"
    " is sorted, which a rule cannot see",
    "aten.t_.default": _RESHAPES,
    "aten.transpose_.default": _RESHAPES,
    "aten.unique_consecutive.default": _LENGTH,
    "aten.unique_dim.default": _LENGTH,
    "aten.unsqueeze_.default": _RESHAPES,
}
"""By overload. Without a rule an op can still run whole, by a fallback."""
