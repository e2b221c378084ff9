"""What a plugin does to torch by itself while it is loaded: seen, undone, and told.

Rules that a plugin writes to torch's tables at import would have no owner and no way out. What
torch's own modules register when a plugin is the first to import them is theirs, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import (
    ABSENT,
    HANDLERS,
    Cell,
    read,
    store,
    table_entries,
)
from dtensor_registry.torch_patch.third_party import is_foreign
from dtensor_registry.torch_runtime.compat import RULE_TABLES, SURFACE, TABLES
from dtensor_registry.torch_runtime.dispatcher import dispatcher, propagator

_RULES = (HANDLERS, *RULE_TABLES)


def watch() -> Callable[[], str | None]:
    """Look at torch's tables and methods; what is returned compares, undoes and tells."""
    layers = LOAN.layers
    before = dict(_cells())
    names = list(_names())

    def undo() -> str | None:
        told: list[str] = []
        for layer in LOAN.layers:
            if layer not in layers:
                LOAN.remove(layer)
                told.append(f"it put {layer.name} in force by itself")
        told += _undo_cells(before)
        told += _undo_names(names)
        return "; ".join(told) or None

    return undo


def _cells() -> Iterator[tuple[Cell, Any]]:
    for table in (HANDLERS, *TABLES):
        for op, value in table_entries(table).items():
            yield (table, op), value


def _undo_cells(before: dict[Cell, Any]) -> list[str]:
    """Give ops that somebody else than torch has written rules for what they had."""
    now = dict(_cells())
    if now == before:
        return []  # as after nearly every import, and quickly found out
    changed = [cell for cell in dict.fromkeys((*before, *now)) if _differs(cell, before)]
    ops = {op for table, op in changed if table in _RULES and _is_theirs((table, op))}
    told = []
    for cell in changed:
        table, op = cell
        if op in ops:
            store(cell, before.get(cell, ABSENT))
            if table in _RULES:
                told.append(f"it wrote to torch's {table} for {op}")
    return told


def _is_theirs(cell: Cell) -> bool:
    """Say whether torch itself would not have left a cell like this; it takes out no entry."""
    value = read(cell)
    return value is ABSENT or is_foreign(value)


def _differs(cell: Cell, before: dict[Cell, Any]) -> bool:
    return read(cell) is not before.get(cell, ABSENT)


def _names() -> Iterator[tuple[Any, str, Any]]:
    """Yield the private names that the host stands on: who has them, which, and what they are."""
    for name in SURFACE:
        if name.belongs_to(torch.__version__):
            for owner, attribute in name.places():
                if attribute in getattr(owner, "__dict__", ()):
                    yield owner, attribute, vars(owner)[attribute]
    for instance in (dispatcher(), propagator()):
        for name_of in {*vars(instance), *_methods(instance)}:
            yield instance, name_of, vars(instance).get(name_of, ABSENT)


def _methods(instance: Any) -> list[str]:
    return [name for name, value in vars(type(instance)).items() if callable(value)]


def _undo_names(names: list[tuple[Any, str, Any]]) -> list[str]:
    told = []
    for owner, name, value in names:
        now = vars(owner).get(name, ABSENT)
        if now is value:
            continue
        if value is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
        whose = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None)
        told.append(f"it replaced torch's {whose or type(owner).__qualname__}.{name}")
    return told
