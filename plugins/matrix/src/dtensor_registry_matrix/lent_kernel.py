"""Calls of the attention op that devices out of tree have a kernel for, and one to check with.

torch has none for CPU, so a check could not run the op. Whoever asks for these calls gets one made
of plain torch, for the life of the process: checks run in processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dtensor_registry_matrix.samples import Call, attention

_OP = "_scaled_dot_product_fused_attention_overrideable"


def fused_attention() -> Iterator[Call]:
    _lend()
    for args, kwargs in attention():
        query, key, value, *flags = args
        bias = kwargs.get("attn_mask")
        dropout, causal = flags or (0.0, False)
        yield (query, key, value, bias, dropout, causal), {"scale": kwargs.get("scale")}


def fused_attention_backward() -> Iterator[Call]:
    import torch

    for args, kwargs in fused_attention():
        query, key, value, bias, dropout, causal = args
        if bias is None:
            continue  # undefined in a real backward, which no call from Python can be
        output, sums, _, _, *lengths, seed, offset, _ = getattr(torch.ops.aten, _OP)(
            *args, **kwargs
        )
        none = torch.empty(0)
        wanted = [True, True, True, True]
        saved = (output, sums, none, none, *lengths, dropout, causal, seed, offset)
        grad = output.flip(-1) * 1.5
        yield (grad, query, key, value, bias, wanted, *saved), kwargs


@lru_cache(maxsize=1)
def _lend() -> Any:
    import torch

    library: Any = torch.library
    library = library.Library("aten", "IMPL")
    library.impl(_OP, _forward, "CPU")
    # What is undefined by torch's own shapes is an empty tensor here.
    library.impl(_OP, _forward, "Meta", allow_override=True)
    library.impl(f"{_OP}_backward", _backward, "CPU")
    return library


def _scores(query: Any, key: Any, bias: Any, causal: bool, scale: float | None) -> Any:
    import torch

    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        kept = torch.ones_like(scores, dtype=torch.bool).tril()
        scores = scores.masked_fill(~kept, -torch.inf)
    return scores


def _forward(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    import torch

    scores = _scores(query, key, bias, causal, scale)
    sums = scores.logsumexp(-1).float()
    state = query.new_zeros((), dtype=torch.int64)
    lengths = query.shape[-2], key.shape[-2]
    # Empty tensors stand for what is undefined on a device: a row has an entry for each.
    nothing = [query.new_empty(0) for _ in range(3)]
    output = scores.softmax(-1) @ value
    return output, sums, *nothing[:2], *lengths, state, state.clone(), nothing[2]


def _backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    wanted: Any,
    output: Any,
    sums: Any,
    seq_q: Any,
    seq_k: Any,
    length_q: int,
    length_k: int,
    dropout: float,
    causal: bool,
    seed: Any,
    offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    weights = (_scores(query, key, bias, causal, scale) - sums.to(query.dtype)[..., None]).exp()
    inner = weights * (grad @ value.mT - (grad * output).sum(-1, keepdim=True))
    of_bias = None if bias is None else inner.sum_to_size(bias.shape)
    return inner @ key * factor, inner.mT @ query * factor, weights.mT @ grad, of_bias
