"""Forms of one op that differ in where the result goes: in place, `out=`, and over lists.

They are recognised by their schemas. `add.Tensor` has the forms `add_.Tensor`, which takes the
same arguments and writes to the first, `add.out`, which takes one more for each output and
writes to those, and `_foreach_add.List`, which takes lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from dtensor_registry.rules import Rule, SchemaInfo
from dtensor_registry.rules.variant import Variant
from dtensor_registry.torch_runtime.foreach import element_of
from dtensor_registry.torch_runtime.schema import facts

_FOREACH = "_foreach_"


def variants_of(base: OpOverload) -> tuple[OpOverload, ...]:
    """List the forms of an op that returns its result and writes to nothing.

    >>> [str(op) for op in variants_of(torch.ops.aten.mul.Tensor)]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['aten.mul.out', 'aten.mul_.Tensor', 'aten._foreach_mul.List', 'aten._foreach_mul.Tensor',
     'aten._foreach_mul_.List', 'aten._foreach_mul_.Tensor']
    """
    namespace, name = base.namespace, base._schema.name.rpartition("::")[2]
    names = (name, f"{name}_", f"{_FOREACH}{name}", f"{_FOREACH}{name}_")
    return tuple(
        op for packet in names for op in _overloads(namespace, packet) if base_of(op) is base
    )


def base_of(op: OpOverload) -> OpOverload | None:
    """Find the form that returns its result, of an op that is another form of it.

    >>> print(base_of(torch.ops.aten.add_.Tensor), base_of(torch.ops.aten.add.Tensor))
    aten.add.Tensor None
    """
    namespace, name = op.namespace, op._schema.name.rpartition("::")[2]
    if name.startswith(_FOREACH):
        return element_of(op)
    written = facts(op).mutates
    if not written:
        return None
    extra = [p.name for p in facts(op).signature.parameters if p.output is not None]
    in_place = name.endswith("_") and not name.endswith("__")
    if (len(written) > 1 or extra) if in_place else tuple(extra) != written:
        return None
    wanted = [_declared(a) for a in op._schema.arguments if a.name not in extra]
    for base in _overloads(namespace, name[:-1] if in_place else name):
        outputs = 1 if in_place else len(extra)
        takes = [_declared(a) for a in base._schema.arguments]
        if takes == wanted and not facts(base).mutates and facts(base).tensor_outputs == outputs:
            return base
    return None


def derived(rule: Rule, base: OpOverload, op: OpOverload) -> Rule:
    """Make the rule of a form of an op from the rule of its base."""
    written = facts(op).mutates
    if not written or op._schema.name.rpartition("::")[2].startswith(_FOREACH):
        return rule  # a form over lists is decided element by element, as calls of the base
    known = facts(op).signature
    in_place = all(parameter.output is None for parameter in known.parameters)
    return Variant(rule, base, known, written[0] if in_place else None)


def widened(given: Any, op: OpOverload) -> Any:
    """Put what a form writes to in a cache key that was written for its base."""
    outs = tuple(p.name for p in facts(op).signature.parameters if p.output is not None)
    if given is None or not outs:
        return given
    keyed = (*(given.static_kwargkey or ()), *outs)
    return SchemaInfo(given.static_argnum, keyed, given.needs_pytree)


def _overloads(namespace: str, name: str) -> Iterator[OpOverload]:
    packet: Any = getattr(getattr(torch.ops, namespace), name, None)
    for overload in () if packet is None else packet.overloads():
        yield getattr(packet, overload)


def _declared(argument: Any) -> tuple[str, str, bool]:
    return argument.name, str(argument.type), argument.kwarg_only
