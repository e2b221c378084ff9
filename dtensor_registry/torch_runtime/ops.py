"""Operator overloads by name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload

Op: TypeAlias = OpOverload
"""An operator overload, by a name that is not private to torch."""


def makers(namespace: str) -> frozenset[str]:
    """List the top-level Python packages that made custom ops in a namespace.

    Of ops that C++ or a bare `torch.library.define` made nobody can tell.

    >>> makers("prims"), makers("no_such_namespace")
    (frozenset({'torch'}), frozenset())
    """
    definitions = [op for name, op in OPDEFS.items() if name.startswith(f"{namespace}::")]
    return frozenset(op._init_fn.__module__.partition(".")[0] for op in definitions)


def overloads(namespace: str) -> Iterator[OpOverload]:
    """List every overload of a namespace that exists by now; of `prims`, all that there are.

    >>> torch.ops.aten.mm.default in set(overloads("aten"))
    True
    """
    if namespace == "prims":
        import_module("torch._prims")  # which defines them
    for qualified in torch._C._dispatch_get_all_op_names():
        space, _, name = qualified.partition("::")
        packet, _, overload = name.partition(".")
        op = find_op(f"{space}.{packet}.{overload or 'default'}") if space == namespace else None
        if op is not None:
            yield op


def find_overloads(name: str) -> tuple[OpOverload, ...]:
    """List the overloads that `aten.mm` or `aten.mm.default` stands for, if any exist yet.

    >>> [str(op) for op in find_overloads("aten.dot")], find_overloads("no.such.op")
    (['aten.dot.default', 'aten.dot.out'], ())
    """
    namespace, op, overload = f"{name}.".split(".")[:3]
    packet: Any = getattr(getattr(torch.ops, namespace), op, None)
    names = [overload] if overload else [] if packet is None else packet.overloads()
    found = (getattr(packet, overload, None) for overload in names)
    return tuple(overload for overload in found if overload is not None)


def find_op(name: str) -> OpOverload | None:
    """Find an overload by the name that messages use, or None while it does not exist.

    >>> find_op("aten.mm.default") is torch.ops.aten.mm.default, find_op("no.such.op")
    (True, None)
    """
    # A whole packet may be named before any of its overloads exists.
    found = find_overloads(name) if name.count(".") == 2 else ()
    return found[0] if found else None
