"""Ops by name, and what torch itself has for them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload

from dtensor_registry._torch.program import is_programs
from dtensor_registry._torch.surface import RULE_TABLES
from dtensor_registry._torch.tables import HANDLERS, LEDGER
from dtensor_registry._torch.variants import variants_of

Op: TypeAlias = OpOverload
"""An operator overload."""

SINGLE_DIM = "op_single_dim_strategy_funcs"


class TorchCatalog:
    """Answers for resolution: which overloads exist, and which torch runs by its own rule."""

    def overloads(self, name: str) -> tuple[str, ...]:
        """List the overloads that `aten.mm` or `aten.mm.default` stands for, if any exist yet."""
        if name.count(".") == 2:
            return () if find_op(name) is None else (name,)
        namespace, _, op = name.partition(".")
        packet = getattr(getattr(torch.ops, namespace), op, None)
        if packet is None:
            return ()
        return tuple(f"{name}.{overload}" for overload in packet.overloads())

    def variants(self, op: str) -> tuple[str, ...]:
        """List the other forms of an overload: in place, `out=`, over lists."""
        overload = find_op(op)
        return () if overload is None else tuple(map(str, variants_of(overload)))

    def torch_table(self, op: str) -> str | None:
        """Name the table in which torch has a handler or a rule, under any override of ours."""
        # The name of a packet stands here only while its library is not imported.
        overload = find_op(op) if op.count(".") == 2 else None
        if overload is None:
            return None
        for table in (HANDLERS, *RULE_TABLES):
            entry = LEDGER.original(table, overload)
            if entry is not None and not is_programs(entry):
                return table
        return None


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
