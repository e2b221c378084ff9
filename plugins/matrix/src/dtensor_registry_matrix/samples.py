"""Calls to check the rules with, of ops that torch's own database does not know.

torch is imported when calls are asked for, not with the plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def _numbers(seed: int, *shape: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def attention() -> Iterator[Call]:
    import torch

    query, key, value = _numbers(0, 2, 4, 6, 8), _numbers(1, 2, 4, 5, 8), _numbers(2, 2, 4, 5, 8)
    yield (query, key, value), {}
    yield (query, value[..., :5, :], value, 0.0, True), {}
    for shape in ((6, 5), (1, 1, 6, 5), (2, 4, 6, 5)):
        yield (query, key, value), {"attn_mask": _numbers(3, *shape), "scale": 0.5}
    yield (query, key, value), {"attn_mask": torch.zeros(2, 1, 1, 5, dtype=torch.float64)}


def attention_backward() -> Iterator[Call]:
    import torch

    forward = getattr(torch.ops.aten, _FORWARD)
    for args, kwargs in attention():
        output, sums = forward(*args, **kwargs)
        flags = args[3:] or (0.0, False)
        yield (_numbers(4, *output.shape), *args[:3], output, sums, *flags), kwargs


def int_mm() -> Iterator[Call]:
    import torch

    a = (_numbers(0, 4, 6) * 20).to(torch.int8)
    yield (a, (_numbers(1, 6, 5) * 20).to(torch.int8)), {}


def scaled_mm() -> Iterator[Call]:
    import torch

    low = torch.float8_e4m3fn
    a, b = _numbers(0, 4, 8).to(low), _numbers(1, 8, 6).to(low)
    one, rows, columns = torch.tensor(0.5), torch.rand(4, 1) + 0.5, torch.rand(1, 6) + 0.5
    yield (a, b, one, one, None, None, torch.float32), {}
    yield (a, b, rows, columns, None, None, torch.float32), {}
    yield (a, b, rows, columns, torch.ones(6), None, torch.float32), {}
    yield (a, b, one, one), {}


def trilinear() -> Iterator[Call]:
    left, weight, right = _numbers(0, 4, 3), _numbers(1, 6, 3, 5), _numbers(2, 4, 5)
    yield (left, weight, right, [1, 3], [0], [1, 2], [2, 3]), {}
