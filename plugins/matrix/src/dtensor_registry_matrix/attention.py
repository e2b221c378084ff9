"""Scaled dot product attention: `softmax(q k^T * scale + mask) v`, one head at a time.

Shapes: query (B, H, L, E), key and value (B, H, S, E), mask broadcast to (B, H, L, S). The output
is (B, H, L, E), the logarithm of the softmax' sum (B, H, L). The first dim may be missing.

On one mesh dim:

- batch and heads are separate: cut in everything that has them.
- so are queries, but under a causal mask, which counts rows from the first, and with dropout.
- keys and values are not: a softmax needs all of them. Its gradient does not: with the sum
  known, each key and value gets its own part, and the query a sum over the keys.
- the output is linear in the values, all gradients are in the gradient of the output.

Source: "FlashAttention", Dao et al. 2022, appendix B (the forms of the sums).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dtensor_registry import REPLICATE, Partial, ShardingPlaceholder, is_tensor

Row: TypeAlias = list[Any]


@dataclass(frozen=True, slots=True)
class _Cut:
    """One way to cut an attention: the dim of the query side, the key side and the mask.

    Dims count from the end; None: the side stays whole, or is summed over in a gradient.
    """

    query: int | None
    key: int | None
    mask: int


_PARTIALS = (Partial("sum"), Partial("avg"))
_BATCH, _HEADS = _Cut(-4, -4, -4), _Cut(-3, -3, -3)
_QUERIES, _KEYS = _Cut(-2, None, -2), _Cut(None, -2, -1)


def attention_for_cpu_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
    """Rows of `_scaled_dot_product_flash_attention_for_cpu` -> (output, logsumexp)."""
    query, key, _, *flags = args
    dropout, causal = _flags(flags)
    mask = kwargs.get("attn_mask")
    rows = []
    for cut in _cuts(query, key, causal or dropout):
        sides = _sides(query, key, cut)
        output, sums = sides[0], _of_sums(query, cut)
        rows.append([output, sums, *sides, *_mask(mask, query, key, cut)])
    for partial in () if dropout else _PARTIALS:
        rest = [REPLICATE] * is_tensor(mask)
        rows.append([partial, REPLICATE, REPLICATE, REPLICATE, partial, *rest])
    return rows


def attention_for_cpu_backward_rows(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Row]:
    """Rows of its gradient -> (grad_query, grad_key, grad_value)."""
    _, query, key, _, _, _, *flags = args
    dropout, causal = _flags(flags)
    mask = kwargs.get("attn_mask")
    rows = []
    for cut in (*_cuts(query, key, causal or dropout), *(() if causal or dropout else (_KEYS,))):
        sides = _sides(query, key, cut)
        inputs = [sides[0], *sides, sides[0], _of_sums(query, cut)]
        rows.append([*_gradients(sides), *inputs, *_mask(mask, query, key, cut)])
    for partial in _PARTIALS:
        rows.append([partial] * 4 + [REPLICATE] * (5 + is_tensor(mask)))
    return rows


def fused_attention_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
    """Rows of `_scaled_dot_product_fused_attention_overrideable`.

    Its tensors: output, logsumexp, cum_seq_q, cum_seq_k, philox_seed, philox_offset, debug mask.
    A device out of tree brings the kernel; all that is used is what the op is to compute. Queries
    are not cut here: their number is a result as well. A random state is that of each rank, as
    it is for torch's other attention ops.
    """
    query, key, _, *rest = args
    bias, flags = (rest[0], rest[1:]) if rest else (kwargs.get("attn_bias"), ())
    dropout, _ = _flags(flags)
    if len(flags) > 2 and flags[2]:
        return []  # the debug mask has a layout of its own
    state = [REPLICATE] * 5
    rows = []
    for cut in _cuts(query, key, queries_count=True):
        sides = _sides(query, key, cut)
        rows.append([sides[0], _of_sums(query, cut), *state, *sides, *_mask(bias, query, key, cut)])
    for partial in () if dropout else _PARTIALS:
        inputs = [REPLICATE, REPLICATE, partial, *[REPLICATE] * is_tensor(bias)]
        rows.append([partial, REPLICATE, *state, *inputs])
    return rows


def fused_attention_backward_rows(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Row]:
    """Rows of its gradient -> (grad_query, grad_key, grad_value, grad_attn_bias).

    The gradient of a bias that is broadcast along the dim that is cut is a sum.
    """
    _, query, key, _, bias, _, _, _, seq_q, seq_k, _, _, *rest = args
    state = [value for value in (seq_q, seq_k, *rest) if is_tensor(value)]
    rows = []
    for cut in _cuts(query, key, queries_count=True):
        sides = _sides(query, key, cut)
        entry = _mask(bias, query, key, cut)
        sums = [Partial("sum") if placed == REPLICATE else placed for placed in entry]
        inputs = [sides[0], *sides, *entry, sides[0], _of_sums(query, cut)]
        outputs = [*_gradients(sides), *(sums or [REPLICATE])]
        rows.append([*outputs, *inputs, *[REPLICATE] * len(state)])
    for partial in _PARTIALS:
        outputs = [partial] * 3 + [partial if is_tensor(bias) else REPLICATE]
        inputs = [partial, *[REPLICATE] * (5 + is_tensor(bias) + len(state))]
        rows.append([*outputs, *inputs])
    return rows


def for_cpu_drops(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether a call of `_scaled_dot_product_flash_attention_for_cpu` has dropout."""
    return _flags(args[3:])[0]


def fused_drops(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether a call of `_scaled_dot_product_fused_attention_overrideable` has dropout."""
    return _flags(args[4:])[0]


def _flags(flags: Sequence[Any]) -> tuple[bool, bool]:
    """Read dropout_p and is_causal, where the call has them."""
    return bool(flags and flags[0]), bool(len(flags) > 1 and flags[1])


def _cuts(query: Any, key: Any, queries_count: bool) -> Iterator[_Cut]:
    rank = len(query.shape)
    if rank > 3 and query.shape[-4] == key.shape[-4]:
        yield _BATCH
    # Fewer heads of keys than of queries are shared, in a way that a cut need not respect.
    if query.shape[-3] == key.shape[-3]:
        yield _HEADS
    if not queries_count:
        yield _QUERIES


def _sides(query: Any, key: Any, cut: _Cut) -> list[Any]:
    """Place query, key and value."""
    other = _entry(key, cut.key)
    return [_entry(query, cut.query), other, other]


def _gradients(sides: Sequence[Any]) -> list[Any]:
    """Place the gradients: as what they are of, and as a sum where that is whole."""
    return [Partial("sum") if side == REPLICATE else side for side in sides]


def _of_sums(query: Any, cut: _Cut) -> Any:
    # (B, H, L), also where the query has no B: torch's shape functions say so.
    return REPLICATE if cut.query is None else ShardingPlaceholder(4 + cut.query)


def _entry(tensor: Any, from_end: int | None) -> Any:
    return REPLICATE if from_end is None else ShardingPlaceholder(len(tensor.shape) + from_end)


def _mask(mask: Any, query: Any, key: Any, cut: _Cut) -> list[Any]:
    """Place a mask, if there is one: whole where it lacks the dim or is repeated along it."""
    if not is_tensor(mask):
        return []
    dim = len(mask.shape) + cut.mask
    whole = key.shape[-2] if cut is _KEYS else query.shape[cut.mask]
    if dim < 0 or (mask.shape[dim] == 1 and whole != 1):
        return [REPLICATE]
    return [ShardingPlaceholder(dim)]
