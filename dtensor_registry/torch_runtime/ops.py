"""Operator overloads by name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload


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


def find_op(name: str) -> OpOverload | None:
    """Find an overload by the name that messages use, or None while it does not exist.

    >>> find_op("aten.mm.default") is torch.ops.aten.mm.default, find_op("no.such.op")
    (True, None)
    """
    if name.count(".") != 2:
        return None  # a whole packet, named before any of its overloads exists
    namespace, op, overload = name.split(".")
    packet: Any = getattr(getattr(torch.ops, namespace), op, None)
    return getattr(packet, overload, None)
