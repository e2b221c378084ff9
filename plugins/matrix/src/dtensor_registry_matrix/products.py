"""Products of matrices with arguments that say more than an equation can."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import Any

from dtensor_registry import REPLICATE, Partial, ShardingPlaceholder, einsum, is_tensor


def matmul_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of `matmul(a, b)`, shapes (*B, M, K) or (K,), and (*B, K, N) or (K,).

    It reaches DTensor under `torch.inference_mode` only; elsewhere it arrives as `mm`, `bmm`, ...

    Source: the documentation of `torch.matmul`.
    """
    left, right = args
    ranks = len(left.shape), len(right.shape)
    batch = ascii_uppercase[: max(*ranks, 2) - 2]
    m, n = "m" if ranks[0] > 1 else "", "n" if ranks[1] > 1 else ""
    first, second = (batch[len(batch) - max(rank - 2, 0) :] for rank in ranks)
    return einsum(f"{first}{m}k,{second}k{n}->{batch}{m}{n}")(op, args, kwargs)


def scaled_mm_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of `_scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype)`.

    Shapes: a (M, K), b (K, N), scales of one element each, or (M, 1) and (1, N), bias (N,).
    Where k is cut, the parts are summed after they are rounded to `out_dtype`: that is done for
    16 and 32 bits, not for 8. What has scales in blocks is not cut along what they count.
    """
    a, b, scale_a, scale_b = args[:4]
    bias, scale_result, out_dtype = (*args[4:7], None, None, None)[:3]
    known = [_scales(scale_a, (a.shape[0], 1)), _scales(scale_b, (1, b.shape[1]))]
    placed = [scale_a, scale_b, bias, scale_result]

    def row(output: Any, left: Any, right: Any, *entries: Any) -> list[Any]:
        kept = [e for value, e in zip(placed, entries, strict=True) if is_tensor(value)]
        return [output, left, right, *kept]

    first, second, whole = ShardingPlaceholder(0), ShardingPlaceholder(1), REPLICATE
    rows = []
    if known[0]:
        scale = first if known[0] == "rows" else whole
        rows.append(row(first, first, whole, scale, whole, whole, whole))
    if known[1]:
        scale = second if known[1] == "rows" else whole
        rows.append(row(second, whole, second, whole, scale, first, whole))
    wide = out_dtype is not None and out_dtype.itemsize > 1
    if all(known) and wide and not is_tensor(scale_result):
        total = Partial("sum")
        rows.append(row(total, second, first, whole, whole, total, whole))
    return rows


def trilinear_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of `_trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim)`.

    Each tensor is given new dims at the places in `expand`; then they are multiplied, and summed
    over `sumdim`. `torch.nn.Bilinear` arrives like this.
    """
    tensors, expands, sums = args[:3], args[3:6], args[6]
    letters = ascii_lowercase[: len(tensors[0].shape) + len(expands[0])]
    operands = [_without(letters, expand) for expand in expands]
    equation = f"{','.join(operands)}->{_without(letters, sums)}"
    return einsum(equation)(op, tensors, {})


def _without(letters: str, places: Any) -> str:
    return "".join(letter for place, letter in enumerate(letters) if place not in places)


def _scales(scale: Any, shape: tuple[Any, Any]) -> str:
    """Say what scales are of: everything, rows (or columns), or what is not known here: ''."""
    sizes = tuple(scale.shape)
    if all(size == 1 for size in sizes):
        return "all"
    return "rows" if sizes == shape else ""
