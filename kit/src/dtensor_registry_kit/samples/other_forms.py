"""Calls of an in-place, `out=` or foreach op, made from calls of the op that it is a form of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from dtensor_registry.rules import is_tensor
from dtensor_registry.torch_runtime.foreach import element_of
from dtensor_registry_kit.samples.sample import Sample
from dtensor_registry_kit.simulation.reference_run import call, outputs_of
from dtensor_registry_kit.torch_private import OpOverload, schema_of


def plain_forms(op: OpOverload) -> list[OpOverload]:
    """Find the ops that compute what an in-place, out or foreach op computes, and write nothing.

    >>> plain_forms(torch.ops.aten.add_.Tensor)
    [<OpOverload(op='aten.add', overload='Tensor')>]
    """
    element = element_of(op)
    if element is not None:
        return [element, *plain_forms(element)]
    if not schema_of(op).is_mutable:
        return []
    namespace, name = schema_of(op).name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    if packet is None:
        return []
    siblings = (getattr(packet, overload) for overload in packet.overloads())
    return [s for s in siblings if not schema_of(s).is_mutable and _kinds(s) == _kinds(op)]


def _kinds(op: OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in schema_of(op).arguments if not a.is_out]


def derived_calls(op: OpOverload, plain: Iterable[Sample]) -> Iterator[Sample]:
    """Turn calls of a plain form into calls of the op; those that it refuses are left out."""
    for sample in plain:
        if element_of(op) is not None:
            sample = _listed(op, sample)
        made = with_outs(op, sample)
        if made is not None and runs(op, made):
            yield replace(made, origin=f"{sample.origin}, in another form")


def runs(op: OpOverload, sample: Sample) -> bool:
    """Say whether an op takes a call, and leaves the sizes of its arguments alone.

    What resizes an argument is nothing that a placement could survive, so no rule is about it.
    """
    copies = [tensor.clone() for tensor in sample.inputs]
    try:
        call(op, sample.args, sample.kwargs, copies)
    except Exception:
        return False
    return all(a.shape == b.shape for a, b in zip(copies, sample.inputs, strict=True))


def with_outs(op: OpOverload, sample: Sample) -> Sample | None:
    """Add the out tensors of a call: of the size of what comes out, and full of another number.

    None if no dtype was right.
    """
    names = [argument.name for argument in schema_of(op).arguments if argument.is_out]
    if not names:
        return sample
    kinds = [t.dtype for t in sample.inputs]
    for dtype in dict.fromkeys((*kinds, torch.float64, torch.bool, torch.int64, torch.float32)):
        for second in (dtype, torch.int32, torch.int64):  # of frexp, of max and its indices
            outs = {n: torch.empty(0, dtype=second if i else dtype) for i, n in enumerate(names)}
            try:
                made = op(*_cloned(sample.args), **_cloned(sample.kwargs), **outs)
            except Exception:  # noqa: S112 - the op refuses this dtype; another is tried
                continue
            filled = {
                name: torch.full_like(out, 7)
                for name, out in zip(names, outputs_of(made), strict=True)
            }
            return replace(sample, kwargs={**sample.kwargs, **filled})
    return None


def _listed(op: OpOverload, sample: Sample) -> Sample:
    """Put each tensor that the op wants a list of in a list of its own."""
    declared = {a.name: str(a.type) for a in schema_of(op).arguments}
    kinds = list(declared.values())
    args = tuple(_as_list(v, kind) for v, kind in zip(sample.args, kinds, strict=False))
    kwargs = {k: _as_list(v, declared[k]) for k, v in sample.kwargs.items() if k in declared}
    return replace(sample, args=args, kwargs=kwargs)


def _as_list(value: Any, kind: str) -> Any:
    return [value] if kind.startswith("List[") and not isinstance(value, (list, tuple)) else value


def _cloned(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _cloned(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_cloned(value) for value in values]
    return values.clone() if is_tensor(values) else values
