"""Calls to check the rules with, where torch's own database knows none or too few.

Sizes that belong together are equal, or grow alike, so that a check can change them. torch is
imported when calls are asked for, not with the plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def _numbers(*shape: int) -> Any:
    import torch

    count = torch.Size(shape).numel()
    values = torch.linspace(-2.0, 2.3, count, dtype=torch.float64) if count else torch.empty(0)
    order = torch.arange(count) * 7 % max(count, 1)  # spread, and the same in every run
    return values[order].reshape(shape)


def _places(limit: int, *shape: int) -> Any:
    import torch

    count = torch.Size(shape).numel()
    return (torch.arange(count) * 5 % limit).reshape(shape)


def bags() -> Iterator[Call]:
    import torch

    indices, offsets = torch.tensor([1, 0, 3, 1, 2, 0]), torch.tensor([0, 2, 3])
    scales = _numbers(6)
    for mode in (0, 1, 2):
        yield (_numbers(4, 5), indices, offsets, False, mode), {}
    yield (_numbers(4, 5), indices, offsets, False, 0, False, scales), {}


def bags_backward() -> Iterator[Call]:
    for args, _ in _bags_backward():
        grad, indices, offsets, offset2bag, bag_size, largest, mode, scales = args
        tensors = (grad, indices, offsets, offset2bag, bag_size, largest)
        yield (*tensors, 9, False, mode, False, scales), {}


def bags_dense_backward() -> Iterator[Call]:
    for args, _ in _bags_backward():
        grad, indices, _, offset2bag, bag_size, largest, mode, scales = args
        yield (grad, indices, offset2bag, bag_size, largest, 9, False, mode, scales), {}


def bags_scales_backward() -> Iterator[Call]:
    for args, _ in _bags_backward():
        grad, indices, offsets, offset2bag, _, _, mode, _ = args
        if mode == 0:
            yield (grad, _numbers(9, 5), indices, offsets, offset2bag, mode), {}


def _bags_backward() -> Iterator[Call]:
    import torch

    for args, _ in bags():
        weight, indices, offsets, *rest = args
        scales = rest[3] if len(rest) > 3 else None
        _, offset2bag, bag_size, largest = torch.embedding_bag(*args)
        grad = _numbers(3, weight.shape[1])
        yield (grad, indices, offsets, offset2bag, bag_size, largest, rest[1], scales), {}


def cdist() -> Iterator[Call]:
    for p in (2.0, 1.0, 0.0, float("inf"), 1.5):
        yield (_numbers(2, 4, 3), _numbers(2, 5, 3), p, None), {}
    yield (_numbers(4, 3), _numbers(2, 5, 3), 2.0, None), {}


def cdist_backward() -> Iterator[Call]:
    import torch

    for p in (2.0, 1.0, float("inf"), 1.5):
        x, y = _numbers(2, 4, 3), _numbers(2, 5, 3).flip(0)
        yield (_numbers(2, 4, 5), x, y, p, torch.cdist(x, y, p)), {}


def pdist() -> Iterator[Call]:
    for p in (2.0, 1.0, float("inf")):
        yield (_numbers(5, 4), p), {}


def pdist_backward() -> Iterator[Call]:
    import torch

    for p in (2.0, 1.0):
        x = _numbers(5, 4)
        distances = torch.nn.functional.pdist(x, p)
        yield (_numbers(len(distances)), x, p, distances), {}


def planes(spatial: int, name: str) -> Iterator[Call]:
    """Calls of a gradient of pooling, whose window keeps the size, or of padding."""
    import torch

    for batch in ((2, 3), (3,)):
        x = _numbers(*batch, *(5,) * spatial)
        windows = [[3] * spatial, [1] * spatial, [1] * spatial]
        if name == "replication_pad":
            yield (_numbers(*batch, *(7,) * spatial), x, [1, 1] * spatial), {}
        elif name == "avg_pool":
            for flags in ((False, True, None), (False, False, 2)):
                yield (_numbers(*x.shape), x, *windows, *flags), {}
        elif name == "adaptive_avg_pool":
            yield (_numbers(*batch, *(4,) * spatial), x), {}
        elif name == "adaptive_max_pool":
            pool = getattr(torch.nn.functional, f"adaptive_max_pool{spatial}d")
            _, indices = pool(x, 4, return_indices=True)
            yield (_numbers(*indices.shape), x, indices), {}
        else:
            # The gradient of this gradient reshapes, and cannot do that to uneven shards.
            x = _numbers(*(4 for _ in x.shape))
            _, indices = torch.nn.functional.max_pool3d(x, 3, 1, 1, return_indices=True)
            yield (_numbers(*x.shape), x, *windows, [1] * spatial, False, indices), {}


def multi_margin() -> Iterator[Call]:
    for reduction in (0, 1, 2):
        grad = _numbers(4) if reduction == 0 else _numbers(1).reshape(())
        yield (grad, _numbers(4, 3), _places(3, 4), 1, 1.0, None, reduction), {}
    yield (_numbers(4), _numbers(4, 3), _places(3, 4), 2, 1.0, _numbers(3), 0), {}


def multilabel_margin() -> Iterator[Call]:
    import torch

    target = torch.tensor([[0, 2, -1], [1, -1, -1], [2, 1, 0], [0, -1, -1]])
    for reduction in (0, 1, 2):
        grad = _numbers(4) if reduction == 0 else _numbers(1).reshape(())
        x = _numbers(4, 3)
        _, is_target = torch.ops.aten.multilabel_margin_loss_forward(x, target, reduction)
        yield (grad, x, target, reduction, is_target), {}


def weight_norm() -> Iterator[Call]:
    import torch

    for dim in (0, 2):
        v = _numbers(3, 4, 5)
        g = _numbers(*(size if at == dim else 1 for at, size in enumerate(v.shape)))
        others = [at for at in range(3) if at != dim]
        norms = torch.linalg.vector_norm(v, dim=others, keepdim=True)
        yield (_numbers(3, 4, 5), v, g, norms, dim), {}


def searching() -> Iterator[Call]:
    import torch

    edges = torch.arange(6, dtype=torch.float64)  # no value lies on an edge
    values = _numbers(4, 5) + 1.013
    yield (edges, values), {}
    yield (edges, values), {"right": True, "out_int32": True}
    rows = edges + torch.arange(4).reshape(4, 1) / 8
    yield (rows, values), {}
    yield (rows.flip(1), values), {"sorter": torch.arange(5, -1, -1).repeat(4, 1)}


def histograms_by_edges() -> Iterator[Call]:
    import torch

    for density, weight in product((False, True), (None, _numbers(3, 5))):
        edges = torch.tensor([-3.03, -0.6, 0.35, 3.1], dtype=torch.float64)
        yield (_numbers(3, 5), edges), {"weight": weight, "density": density}


def histograms_by_range() -> Iterator[Call]:
    for density, limits in product((False, True), ([-3.03, 3.1], None)):
        kwargs = {"range": limits, "weight": _numbers(3, 5), "density": density}
        yield (_numbers(3, 5), 4), kwargs


def counts() -> Iterator[Call]:
    yield (_places(7, 9), _numbers(9)), {}
    # Were it larger than all values, the counts of parts would be as long as those of the whole.
    yield (_places(7, 9), None, 3), {}


def written() -> Iterator[Call]:
    """Whole numbers: what torch's gradient of these ops writes into is a plain tensor."""
    import torch

    x = torch.arange(60).reshape(3, 4, 5) - 30
    for dim in (0, 1, -1):
        size = x.shape[dim]
        yield (x, x.narrow(dim, 0, 2) * 3, dim, 1, 3), {}
        yield (x, x.narrow(dim, 0, (size + 1) // 2) * 3, dim, 0, size, 2), {}


def written_at() -> Iterator[Call]:
    import torch

    x = torch.arange(60).reshape(3, 4, 5) - 30
    for dim in (0, 1, -1):
        yield (x, x.select(dim, 0) * 3, dim, 1), {}


def reduced_scatters() -> Iterator[Call]:
    for reduce, include_self in product(("sum", "amax", "amin", "prod", "mean"), (True, False)):
        args = (_numbers(3, 4), 1, _places(4, 3, 4), _numbers(3, 4) * 1.1, reduce)
        yield args, {"include_self": include_self}
    yield (_numbers(5, 4), 0, _places(5, 3, 4), _numbers(3, 4) * 1.1, "sum"), {}


def old_scatters() -> Iterator[Call]:
    for reduce in ("add", "multiply"):
        args = (_numbers(3, 4), 1, _places(4, 3, 4), _numbers(3, 4) * 1.1)
        yield args, {"reduce": reduce}


def old_number_scatters() -> Iterator[Call]:
    for reduce in ("add", "multiply"):
        yield (_numbers(3, 4), 1, _places(4, 3, 4), 2.5), {"reduce": reduce}


def segments() -> Iterator[Call]:
    import torch

    lengths = torch.tensor([2, 1, 3])
    for reduce in ("sum", "mean", "max", "min", "prod"):
        yield (_numbers(6, 4), reduce), {"lengths": lengths, "axis": 0, "unsafe": True}
    yield (_numbers(2, 6, 4), "sum"), {"lengths": lengths.repeat(2, 1), "axis": 1, "unsafe": True}


def segments_backward() -> Iterator[Call]:
    import torch

    for args, kwargs in segments():
        data, reduce = args
        output = torch.segment_reduce(data, reduce, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name != "unsafe"}
        yield (_numbers(*output.shape), output, data, reduce), rest


def puts() -> Iterator[Call]:
    """Whole numbers, as in `written`."""
    import torch

    x = torch.arange(12).reshape(3, 4) - 5
    for accumulate in (False, True):
        yield (x, torch.arange(5) * 5 % 12, x.flatten()[2:7] * 3, accumulate), {}


def copies() -> Iterator[Call]:
    yield (_numbers(3, 4), _numbers(4)), {}
    yield (_numbers(3, 4), _numbers(3, 4) * 1.1), {}
    yield (_numbers(3, 4).int(), _numbers(3, 1) * 1.1), {}
