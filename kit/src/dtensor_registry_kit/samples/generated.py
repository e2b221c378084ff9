"""Calls of an op generated from its schema: the last resort, where nobody knows better.

Shapes are tried until the op takes them; sizes are all different, so that dims which do not
belong together do not agree by chance. What an op takes need not be what it is meant for,
so a report says that its samples were generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import torch

from dtensor_registry.rules.metadata import fill
from dtensor_registry_kit.samples.other_forms import runs, with_outs
from dtensor_registry_kit.samples.sample import Sample, draw
from dtensor_registry_kit.simulation.reference_run import call, outputs_of
from dtensor_registry_kit.torch_private import OpOverload, schema_of

ORIGIN = "generated from the schema"

_TRIES = 600
"""Calls that are tried of one op and palette."""

_ENOUGH = 16
"""Calls that are enough, before the arguments that are no tensors are varied."""

_Shape = tuple[int, ...]
_MAIN: tuple[_Shape, ...] = ((4, 6), (3, 4, 6), (6,), ())
_OTHERS: tuple[_Shape, ...] = ((6, 5), (3, 6, 5), (5, 6), (5,), (4,), (2, 3, 4, 6), (6, 6))
_INTEGERS = ("index", "indices", "target", "n", "bins")
_TRUTHS = ("mask", "condition")

_Palette = torch.dtype
_PALETTES: tuple[_Palette, ...] = (torch.float64, torch.int64, torch.bool, torch.complex128)

_VALUES: dict[str, tuple[Any, ...]] = {
    "number": (1.25, 2, 0, -0.5, -1, True),
    "int": (1, 0, 2, -1, 3),
    "float": (0.5, 0.25, 2.0),
    "bool": (False, True),
    "str": ("mean", "sum", "none", "tanh", "floor", "trunc"),
    "List[int]": ([1], [0], [1, 2], [2, 3]),
    "List[float]": ([0.5],),
    "List[bool]": ([True], [True, True], [True, True, True], [True, False]),
}


@dataclass(frozen=True, slots=True)
class _Slot:
    """One argument of an op: how tensors are made for it, or the values to try."""

    name: str
    kind: str
    keyword: bool
    values: tuple[Any, ...]

    @property
    def is_tensor(self) -> bool:
        return "Tensor" in self.kind

    @property
    def is_list(self) -> bool:
        return "List[" in self.kind

    @property
    def is_optional(self) -> bool:
        return self.kind.startswith("Optional[")


def generated_calls(op: OpOverload) -> list[Sample]:
    """Make calls that an op takes: many shapes, every flag both ways.

    >>> [str(sample) for sample in generated_calls(torch.ops.aten.mm.default)[:2]]
    ['f64[4,6], f64[6,5]', 'f64[4,6], f64[6,6]']
    """
    slots = [_slot(argument) for argument in schema_of(op).arguments if not argument.is_out]
    found: list[Sample] = []
    for palette in _PALETTES:
        taken = list(islice(_taken(op, slots, palette), _ENOUGH))
        found += taken
        if taken:
            found += _varied(op, slots, taken[0])
    return found


def _slot(argument: Any) -> _Slot:
    kind = str(argument.type)
    plain = kind.removeprefix("Optional[").removesuffix("]") if "Optional" in kind else kind
    if "Tensor" in kind:
        values: tuple[Any, ...] = ()
    elif plain in _VALUES:
        values = _VALUES[plain]
    else:
        values = (torch.float32,) if argument.name.endswith("dtype") else ()
    if argument.has_default_value():
        values = (argument.default_value, *values)
    elif kind.startswith("Optional["):
        values = (*values, None) if "dtype" not in argument.name else (None, *values)
    return _Slot(argument.name, kind, argument.kwarg_only, values or (None,))


def _taken(op: OpOverload, slots: list[_Slot], palette: _Palette) -> Iterator[Sample]:
    tensors = [slot for slot in slots if slot.is_tensor]
    for shapes in islice(_shapes(tensors), _TRIES):
        made = iter(
            [
                None if shape is None else _tensors(slot, shape, palette, position)
                for position, (slot, shape) in enumerate(zip(tensors, shapes, strict=True))
            ]
        )
        values = [next(made) if slot.is_tensor else slot.values[0] for slot in slots]
        sample = _accepted(op, _called(slots, values))
        if sample is None and any(len(slot.values) > 1 for slot in slots):
            sample = next(_varied(op, slots, _called(slots, values)), None)
        if sample is not None:
            yield sample


def _shapes(slots: list[_Slot]) -> Iterator[tuple[_Shape | None, ...]]:
    """List shapes for the tensors of a call, the likeliest first."""
    first, rest = slots[:1], slots[1:]
    if not first:
        return
    seen: set[tuple[_Shape | None, ...]] = set()
    for vocabulary in (_related, _everything):
        for main in (*_MAIN, *_OTHERS) if vocabulary is _everything else _MAIN:
            choices = [[*vocabulary(main), *([None] * slot.is_optional)] for slot in rest]
            for others in product(*choices):
                if (main, *others) not in seen:
                    seen.add((main, *others))
                    yield (main, *others)


def _related(main: _Shape) -> list[_Shape]:
    """Shapes that go with another: the same, parts of it, broadcast to it, its matrix factor."""
    shapes = [main, main[-1:], (*main[:-1], 1), (1, *main[1:]), (), main[:1], main[:-1]]
    if len(main) > 1:
        shapes += [(*main[:-2], main[-1], 5), main[1:]]
    elif main:
        shapes.append((4, *main))
    return list(dict.fromkeys(shapes))


def _everything(main: _Shape) -> list[_Shape]:
    return list(dict.fromkeys((*_related(main), *_MAIN, *_OTHERS)))


def _tensors(slot: _Slot, shape: _Shape, palette: _Palette, position: int) -> Any:
    if slot.is_list:
        return [_tensor(slot, shape, palette, position + 10 * i) for i in range(2)]
    return _tensor(slot, shape, palette, position)


def _tensor(slot: _Slot, shape: _Shape, palette: _Palette, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if slot.name in _TRUTHS or palette == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if palette == torch.int64 or slot.name in _INTEGERS:
        return torch.randint(1 if palette == torch.int64 else 0, 4, shape, generator=generator)
    return draw(shape, palette, seed)


def _called(slots: list[_Slot], values: list[Any]) -> Sample:
    pairs = list(zip(slots, values, strict=True))
    args = tuple(value for slot, value in pairs if not slot.keyword)
    kwargs = {slot.name: value for slot, value in pairs if slot.keyword and value is not None}
    return Sample(args, kwargs, ORIGIN)


def _accepted(op: OpOverload, sample: Sample) -> Sample | None:
    made = with_outs(op, sample)
    return made if made is not None and runs(op, made) and _is_meant(op, made) else None


def _is_meant(op: OpOverload, sample: Sample) -> bool:
    """Say whether an op's shape function agrees with what comes out.

    A kernel may broadcast what its author never thought of; the shape function does not.
    """
    args, kwargs = fill(sample.args, sample.kwargs, [t.to("meta") for t in sample.inputs])
    try:
        described = outputs_of(op(*args, **kwargs))
    except Exception:
        return True  # no shape function, or none that works without numbers
    computed = call(op, sample.args, sample.kwargs, [t.clone() for t in sample.inputs])
    return [getattr(v, "shape", None) for v in described] == [
        getattr(v, "shape", None) for v in computed
    ]


def _varied(op: OpOverload, slots: list[_Slot], base: Sample) -> Iterator[Sample]:
    """Give each argument that is no tensor its other values, one at a time."""
    place = 0
    for slot in slots:
        for value in slot.values[1:] if not slot.is_tensor else ():
            if slot.keyword:
                changed = replace(base, kwargs={**base.kwargs, slot.name: value})
            else:
                args = (*base.args[:place], value, *base.args[place + 1 :])
                changed = replace(base, args=args)
            outs = {a.name for a in schema_of(op).arguments if a.is_out}
            kept = {k: v for k, v in changed.kwargs.items() if k not in outs}
            sample = _accepted(op, replace(changed, kwargs=kept))
            if sample is not None:
                yield sample
        place += not slot.keyword
