"""Calls of torch's own ops, taken from the database that torch tests itself with (OpInfo).

The database knows functions such as `torch.nn.functional.silu`; what it says of an overload
is found by running its samples and writing down every call that the overload receives, in
the forward and in the backward pass.

It is private and heavy (about 4 s to import), so nothing here is imported before it is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import torch

from dtensor_registry.errors import RegistryError
from dtensor_registry.rules import tensor_inputs
from dtensor_registry_kit.samples.sample import Sample
from dtensor_registry_kit.torch_private import (
    OpOverload,
    TorchDispatchMode,
    sample_database,
    schema_of,
    tree_leaves,
    tree_map,
)

NAMESPACES = ("aten", "prims")
"""Whose ops the database is about."""

_FOREACH = "_foreach_"

LARGEST = 4096
"""Elements that a tensor of a sample may have: more takes longer and shows no more."""

MOST = 40
"""Samples that are run of one entry and dtype, unless fewer will do."""

_DTYPES = (torch.float64, torch.float32, torch.complex128, torch.int64, torch.bool)


class MissingOpInfoError(RegistryError):
    """torch's database of sample inputs cannot be imported here."""

    def __init__(self, cause: ImportError) -> None:
        self.package = cause.name
        super().__init__(
            f"torch's sample inputs (OpInfo) cannot be imported: {cause}\n"
            "  Install what they need:  pip install dtensor-registry-kit"
        )


def opinfo_calls(op: OpOverload, most: int = MOST) -> list[Sample]:
    """List the calls of an overload that the database leads to; empty if it knows none.

    Args:
        op: the overload.
        most: samples that are run of one entry and dtype.

    Raises:
        MissingOpInfoError: if the database cannot be imported; names what to install.
    """
    if op.namespace not in NAMESPACES:
        return []
    return _calls(op, _entries().get(_base(op), ()), most)


def opinfo_list_calls(op: OpOverload, most: int) -> list[Sample]:
    """List the calls of an op on lists that torch's samples for these lead to.

    Args:
        op: the overload.
        most: samples that are run of one entry and dtype.

    Raises:
        MissingOpInfoError: if the database cannot be imported; names what to install.
    """
    name = schema_of(op).name.rpartition("::")[2].removesuffix("_")
    return _calls(op, _entries().get(name, ()) if name.startswith(_FOREACH) else (), most)


def _calls(op: OpOverload, entries: Iterable[int], most: int) -> list[Sample]:
    found: dict[str, Sample] = {}
    for index in entries:
        for sample in _captured(index, most).get(op, ()):
            found.setdefault(f"{sample} {[t.stride() for t in sample.inputs]}", sample)
    return list(found.values())


def _base(op: OpOverload) -> str:
    """Name the function that an op is the in-place, foreach or backward form of.

    >>> _base(torch.ops.aten.silu_backward.default), _base(torch.ops.aten.add_.Tensor)
    ('silu', 'add')
    """
    name = schema_of(op).name.rpartition("::")[2]
    return name.removesuffix("_").removesuffix("_backward").removeprefix("_foreach_").strip("_")


@lru_cache(maxsize=1)
def _database() -> Sequence[Any]:
    try:
        database = sample_database()
    except ImportError as error:
        raise MissingOpInfoError(error) from error
    kinds = ("unary", "binary", "pointwise", "reduce", "other")
    lists = [getattr(database, f"foreach_{kind}_op_db") for kind in kinds]
    return tuple(entry for each in (database.op_db, *lists) for entry in each)


@lru_cache(maxsize=1)
def _entries() -> dict[str, list[int]]:
    """For each name that an aten op may have, the entries of the database that may call it."""
    found: dict[str, list[int]] = {}
    for index, entry in enumerate(_database()):
        if entry.name.startswith(_FOREACH):
            found.setdefault(entry.name, []).append(index)
            continue
        names = {entry.name, entry.aten_name, entry.aten_backward_name, *map(str, entry.aliases)}
        spelt = {part for name in names if name for part in (*_spellings(name),)}
        for name in spelt:
            found.setdefault(name, []).append(index)
    return found


def _spellings(name: str) -> Iterator[str]:
    """`special.i0e` is `special_i0e` in aten, and `nn.functional.relu` is `relu`."""
    for spelt in (name, name.replace(".", "_"), name.rpartition(".")[2]):
        yield spelt.removesuffix("_backward").strip("_")


@lru_cache(maxsize=32)
def _captured(index: int, most: int) -> dict[OpOverload, list[Sample]]:
    """Run the samples of one entry; return what each overload was called with."""
    entry = _database()[index]
    recorder = _Recorder(entry.name)
    for dtype in _dtypes(entry):
        differentiable = dtype.is_floating_point and entry.supports_autograd
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sample functions and deprecated ops
            for sample in islice(_samples(entry, dtype, differentiable), most):
                for run, op in _runs(entry, differentiable):
                    try:
                        with torch.random.fork_rng(devices=[]):
                            run(op, sample, recorder)
                    except Exception:  # noqa: S112 - a sample that does not run is no sample
                        continue
    return recorder.calls


def _runs(entry: Any, differentiable: bool) -> Iterator[tuple[Callable[..., None], Any]]:
    """List how a sample is run: the ops on lists have no other way to be called in place."""
    yield _composite, entry.op
    yield _forward, entry.op
    if entry.name.startswith(_FOREACH) and entry.inplace_variant is not None:
        yield _forward, entry.inplace_variant
    elif differentiable:
        yield _backward, entry.op


def _dtypes(entry: Any) -> list[torch.dtype]:
    known = entry.supported_dtypes("cpu")
    return [dtype for dtype in _DTYPES if dtype in known][:3]


def _samples(entry: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """Yield samples until one cannot be made; they are the same in every process."""
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    try:
        few = {"num_input_tensors": [2]} if entry.name.startswith(_FOREACH) else {}
        yield from entry.sample_inputs("cpu", dtype, requires_grad=requires_grad, **few)
    except Exception:
        return  # an entry that cannot make its samples here has none
    finally:
        torch.random.set_rng_state(state)


def _composite(op: Callable[..., Any], sample: Any, recorder: _Recorder) -> None:
    """Composite ops reach a mode whole only in inference mode."""
    with torch.inference_mode(), recorder:
        op(_fresh(sample.input), *_fresh(sample.args), **_fresh(sample.kwargs))


def _forward(op: Callable[..., Any], sample: Any, recorder: _Recorder) -> None:
    with torch.no_grad(), recorder:
        op(_fresh(sample.input), *_fresh(sample.args), **_fresh(sample.kwargs))


def _backward(op: Callable[..., Any], sample: Any, recorder: _Recorder) -> None:
    outputs = tree_leaves(op(sample.input, *sample.args, **sample.kwargs))
    live = [out for out in outputs if isinstance(out, torch.Tensor) and out.requires_grad]
    ones = [
        torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape) for out in live
    ]
    with recorder:
        torch.autograd.backward(live, ones)


def _fresh(values: Any) -> Any:
    return tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, values)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every call of an aten or prims op on small plain tensors."""

    def __init__(self, origin: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.origin = f"OpInfo {origin!r}"
        self.calls: dict[OpOverload, list[Sample]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverload) and _is_plain(tensor_inputs(args, kwargs)):
            taken = Sample(_fresh(args), _fresh(kwargs), self.origin)
            self.calls.setdefault(func, []).append(taken)
        return func(*args, **kwargs)


def _is_plain(tensors: Sequence[Any]) -> bool:
    return bool(tensors) and all(
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and tensor.numel() <= LARGEST
        for tensor in tensors
    )
