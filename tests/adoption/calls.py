"""Calls of ATen ops to decide, recorded while torch's own test samples run on plain tensors.

torch keeps sample inputs for its operators (`OpInfo`). Each sample runs here once forward,
backward, in place and with `out=`, and what reaches the dispatcher is written down with every
tensor replaced by its metadata.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_TENSORS = 6
"""Calls with more tensors are left out: bare torch would list millions of combinations."""
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)


class TensorLike(NamedTuple):
    """What a decision sees of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op, its tensors given as `TensorLike`.

    Attributes:
        op: the overload.
        args: positional arguments; lists of tensors stay lists.
        kwargs: keyword arguments.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        given = [*map(_show, self.args), *(f"{k}={_show(v)}" for k, v in self.kwargs.items())]
        return f"{self.op}({', '.join(given)})"

    @property
    def tensors(self) -> list[TensorLike]:
        """The tensors in schema order, lists flattened."""
        return [v for v in leaves((self.args, dict(self.kwargs))) if isinstance(v, TensorLike)]


Calls: TypeAlias = dict[OpOverload, list[Call]]


def leaves(tree: Any) -> list[Any]:
    """Flatten containers, but not a `TensorLike`, which is a tuple itself."""
    return tree_leaves(tree, is_leaf=lambda v: isinstance(v, TensorLike))


def describe(tensor: torch.Tensor) -> TensorLike:
    """Keep of a tensor what a decision sees."""
    return TensorLike(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


class Recorder(TorchDispatchMode):
    """Writes down every call that reaches the dispatcher, each distinct one once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[OpOverload, dict[str, Call]] = {}

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        call = Call(func, *tree_map_only(torch.Tensor, describe, (args, given)))
        result = func(*args, **given)
        if 0 < len(call.tensors) <= MOST_TENSORS:
            self._seen.setdefault(func, {}).setdefault(str(call), call)
        return result

    @property
    def calls(self) -> Calls:
        """Distinct calls by op, ops by name."""
        ops = sorted(self._seen, key=str)
        return {op: list(self._seen[op].values()) for op in ops}


def record(samples_per_op: int) -> Calls:
    """Run torch's samples and list the calls that they come down to.

    Args:
        samples_per_op: how many samples of each `OpInfo` to run.
    """
    recorder = Recorder()
    with quiet(), torch.random.fork_rng():
        torch.manual_seed(0)
        for info, sample, differentiable in _samples(samples_per_op):
            _run(recorder, info, sample, differentiable)
        for step in _optimizer_steps():
            _attempt(recorder, step)
    return recorder.calls


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from reporting calls that an op refuses, and samples that it thinks unwise."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    log.setLevel(level)


def _samples(per_op: int) -> Iterator[tuple[Any, Any, bool]]:
    from torch.testing._internal import common_methods_invocations as database

    infos = [*database.op_db]
    for kind in ("unary", "binary", "pointwise", "reduce", "other"):
        infos += getattr(database, f"foreach_{kind}_op_db")
    for info in infos:
        dtype = next((dtype for dtype in DTYPES if dtype in info.dtypes), None)
        if dtype is None:
            continue
        differentiable = info.supports_autograd and dtype.is_floating_point
        few = {"num_input_tensors": [2]} if info.name.startswith("_foreach") else {}
        samples = info.sample_inputs("cpu", dtype, requires_grad=differentiable, **few)
        try:
            for sample in itertools.islice(samples, per_op):
                yield info, sample, differentiable
        except (RuntimeError, TypeError):  # a few generators need CUDA or a library
            continue


def _run(recorder: Recorder, info: Any, sample: Any, differentiable: bool) -> None:
    result = _attempt(recorder, lambda: info.op(sample.input, *sample.args, **sample.kwargs))
    if result is None:
        return
    if differentiable:
        _attempt(recorder, lambda: _backward(result))
    first, args, kwargs = tree_map_only(
        torch.Tensor, lambda t: t.detach().clone(), (sample.input, sample.args, sample.kwargs)
    )
    if info.supports_out and isinstance(result, torch.Tensor):
        out = torch.empty_like(result.detach())
        _attempt(recorder, lambda: info.op(first, *args, **kwargs, out=out))
    if info.inplace_variant:
        _attempt(recorder, lambda: info.inplace_variant(first, *args, **kwargs))


def _backward(result: Any) -> bool:
    roots = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    return True


def _attempt(recorder: Recorder, run: Callable[[], Any]) -> Any:
    """Run something under the recorder; a sample that torch itself refuses counts for nothing."""
    try:
        with recorder:
            return run()
    except (RuntimeError, AssertionError, IndexError, NotImplementedError, TypeError, ValueError):
        return None


def _optimizer_steps() -> Iterator[Callable[[], Any]]:
    """Make one step of each fused and each foreach optimizer."""
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
        for option in ("fused", "foreach"):
            weight = torch.nn.Parameter(torch.randn(8, 6))
            weight.grad = torch.randn(8, 6)
            yield kind([weight], lr=0.1, **{option: True}).step  # type: ignore[arg-type]


def _show(value: Any) -> str:
    if isinstance(value, TensorLike):
        dense = torch.empty(value.shape, device="meta").stride() == value.stride
        strides = "" if dense else f" strides {value.stride}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{strides}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_show, value))}]"
    return repr(value)
