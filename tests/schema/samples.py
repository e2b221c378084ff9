"""Calls of ATen ops on plain tensors: recorded from torch's own samples, or made up."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.schema.handmade import HANDMADE

Sample: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Samples: TypeAlias = Mapping[OpOverload, Sequence[Sample]]

PER_OP = 6
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
SHAPES = ((4, 4), (4, 6), (4,), (2, 4, 6), (2, 4, 6, 6), (2, 4, 4, 6, 6), (4, 8, 16), (32, 32))
TRIES = 400
_ERRORS = (
    RuntimeError,
    AssertionError,
    IndexError,
    NotImplementedError,
    TypeError,
    ValueError,
    AttributeError,
)


def copied(sample: Any) -> Any:
    """Copy every tensor of a sample."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), sample)


class Recorder(TorchDispatchMode):
    """Writes down the first calls of every op."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: defaultdict[OpOverload, list[Sample]] = defaultdict(list)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        sample = None
        if len(self.samples[func]) < PER_OP:
            sample = copied((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if sample is not None and any(isinstance(v, Tensor) for v in tree_leaves(sample)):
            self.samples[func].append(sample)
        return result


def recorded(per_op: int = 4) -> Samples:
    """Run torch's samples forward, backward, in place and with `out=`.

    Args:
        per_op: how many samples of each `OpInfo` to run.
    """
    recorder = Recorder()
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for info, sample, differentiable in _op_db(per_op):
            first, args, kwargs = sample.input, sample.args, sample.kwargs
            result = _attempt(recorder, partial(info.op, first, *args, **kwargs))
            if differentiable and result is not None:
                _attempt(recorder, partial(_backward, result))
            first, args, kwargs = copied((first, args, kwargs))
            for variant in filter(None, (info.inplace_variant,)):
                _attempt(recorder, partial(variant, first, *args, **kwargs))
    return recorder.samples


def samples_of(op: OpOverload, given: Samples) -> Iterator[Sample]:
    """Give calls of an op: recorded or written ones, such of its functional form, guesses."""
    yield from _known(op, given)
    for functional in _functional_forms(op):
        for args, kwargs in itertools.chain(_known(functional, given), _guesses(functional)):
            yield from _with_out(op, functional, args, kwargs)
    yield from _guesses(op)


def fitted(op: OpOverload, sample: Sample) -> Sample:
    """Give `out=` tensors the shape that the op would give them."""
    args, kwargs = copied(sample)
    op(*args, **kwargs)
    names = {a.name for a in op._schema.arguments if a.is_out}
    blank = tree_map_only(Tensor, torch.zeros_like, {k: kwargs[k] for k in names & kwargs.keys()})
    return sample[0], {**sample[1], **blank}


def _known(op: OpOverload, given: Samples) -> Iterator[Sample]:
    made = HANDMADE.get(str(op).removeprefix("aten."))
    if made is not None:
        yield made()
    yield from given.get(op, ())


def _op_db(per_op: int) -> Iterator[tuple[Any, Any, bool]]:
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
        try:
            samples = info.sample_inputs("cpu", dtype, requires_grad=differentiable, **few)
            for sample in itertools.islice(samples, per_op):
                yield info, sample, differentiable
        except _ERRORS:
            continue  # a few generators need CUDA or a library


def _attempt(recorder: Recorder, run: Callable[[], Any]) -> Any:
    """Run something under the recorder; a sample that torch itself refuses counts for nothing."""
    try:
        with recorder:
            return run()
    except _ERRORS:
        return None


def _backward(result: Any) -> None:
    roots = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
    torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def _functional_forms(op: OpOverload) -> Iterator[OpOverload]:
    """List overloads with the same arguments but those that are written to."""
    schema = op._schema
    names = [a.name for a in schema.arguments if not a.is_out]
    packet_name = schema.name.partition("::")[2]
    for name in dict.fromkeys((packet_name, packet_name.removesuffix("_"))):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            other = getattr(packet, overload)
            if other is not op and [a.name for a in other._schema.arguments] == names:
                yield other


def _with_out(
    op: OpOverload, functional: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Sample]:
    """Add `out=` tensors, of the shapes that the functional form returns."""
    names = [a.name for a in op._schema.arguments if a.is_out]
    if not names:
        yield args, kwargs
        return
    try:
        results = functional(*copied(args), **copied(kwargs))
    except _ERRORS:
        return
    blank = tree_map_only(Tensor, torch.zeros_like, results)
    outs = [blank] if len(names) == 1 else list(blank or ())
    if len(outs) == len(names):
        yield args, {**kwargs, **dict(zip(names, outs, strict=True))}


def _guesses(op: OpOverload) -> Iterator[Sample]:
    """Try values by type and name of each argument; the same ones in every run."""
    dice = random.Random(str(op))
    generator = torch.Generator().manual_seed(0)
    arguments = op._schema.arguments
    for attempt in range(TRIES):
        shape = SHAPES[attempt % len(SHAPES)]
        values = {a.name: _value(a, shape, attempt, dice, generator) for a in arguments}
        yield (
            tuple(values[a.name] for a in arguments if not a.kwarg_only),
            {a.name: values[a.name] for a in arguments if a.kwarg_only},
        )


def _value(
    argument: Any, shape: Sequence[int], attempt: int, dice: random.Random, generator: Any
) -> Any:
    kind = str(argument.type)
    if argument.has_default_value() and (attempt < TRIES // 2 or "Tensor" not in kind):
        return argument.default_value
    if kind.startswith("Optional"):
        return (
            None if "Tensor" not in kind else dice.choice([None, _tensor(shape, dice, generator)])
        )
    if "List[" in kind and "Tensor" in kind:
        return [_tensor(shape, dice, generator) for _ in range(2)]
    if "Tensor" in kind:
        whole = any(word in argument.name for word in ("ind", "target", "length", "offset", "size"))
        other = shape if attempt < TRIES // 4 else dice.choice([shape, shape[:1], shape[1:2], ()])
        return _tensor(other, dice, generator, whole or dice.random() < 0.15)
    if "List[" in kind:
        size = dice.choice([1, 2, 3])
        if "bool" in kind:
            return [True] * size
        if "float" in kind or "number" in kind:
            return [0.5] * 2
        return dice.choice([[2] * size, [1] * size, list(shape), [0]])
    if kind in ("int", "SymInt"):
        return dice.choice([0, 1, 2, 4, shape[0]])
    plain = {"bool": False, "float": 0.5, "number": 1, "str": "sum"}
    return plain.get(kind)


def _tensor(
    shape: Sequence[int], dice: random.Random, generator: Any, whole: bool = False
) -> Tensor:
    if whole:
        return torch.randint(0, 2, tuple(shape), generator=generator)
    return torch.rand(tuple(shape), generator=generator)
