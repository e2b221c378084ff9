"""What other code than torch and the host has in torch's tables, and where it was written."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch._ops import OpOverload

from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.program_rules import is_programs
from dtensor_registry.torch_patch.table_patcher import ABSENT, HANDLERS, LEDGER, read, table_entries
from dtensor_registry.torch_runtime.compat import RULE_TABLES


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """One entry of one of torch's tables that is neither torch's nor the host's.

    Attributes:
        op: whose rule or handler it is.
        table: where it is.
        author: the function, and where it was written; or that the entry was taken out.
    """

    op: str
    table: str
    author: str

    def __str__(self) -> str:
        return f"{self.op} in {self.table}: {self.author}"


def overwritten() -> list[ForeignEntry]:
    """List the entries on loan that no longer hold what the host wrote.

    >>> overwritten()
    []
    """
    found = []
    for op in sorted({op for layer in LOAN.layers for op in layer.entries}, key=str):
        ruling = LOAN.find(op)
        for cell, value in ruling[1].cells(op).items() if ruling is not None else ():
            current = read(cell)
            if current is not value:
                found.append(ForeignEntry(str(op), cell[0], author_of(current)))
    return found


def strangers() -> list[ForeignEntry]:
    """List the rules and handlers that torch has by other means than plugins, under any override.

    What the program registered by torch's public `register_sharding` is none of them.
    """
    found = []
    on_loan = {op for layer in LOAN.layers for op in layer.entries}
    for table in (HANDLERS, *RULE_TABLES):
        ops: set[OpOverload] = {*table_entries(table), *on_loan}
        for op in ops:
            value = LEDGER.original(table, op)
            if value is not None and is_foreign(value) and not is_programs(value):
                found.append(ForeignEntry(str(op), table, author_of(value)))
    return sorted(found, key=lambda entry: (entry.op, entry.table))


def author_of(value: Any) -> str:
    """Say which function an entry comes down to, and where that was written.

    A function of somebody else comes before torch's.
    """
    if value is ABSENT:
        return "taken out"
    functions = list(functions_in(value))
    functions.sort(key=_is_torchs)
    if not functions:
        return f"a {type(value).__module__}.{type(value).__qualname__}"
    function = functions[0]
    code = function.__code__
    return (
        f"{function.__module__}.{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    )


def is_foreign(value: Any) -> bool:
    """Say whether a rule or handler is not torch's.

    torch's `register_sharding` wraps the function that it is given into one of its own.

    >>> is_foreign(is_foreign)
    True
    """
    functions = list(functions_in(value))
    if functions:
        return not all(map(_is_torchs, functions))
    return not _is_of_torch(getattr(value, "__module__", None) or type(value).__module__)


def functions_in(value: Any, seen: set[int] | None = None) -> Iterator[FunctionType]:
    """Unwrap what wrappers, partials, closures and methods come down to, the wrapper first."""
    seen = set() if seen is None else seen
    if inspect.ismethod(value):
        value = value.__func__
    if id(value) in seen:
        return  # closures may hold each other
    seen.add(id(value))
    if isinstance(value, FunctionType):
        yield value
        for cell in value.__closure__ or ():
            try:
                inner = cell.cell_contents
            except ValueError:
                continue  # a name that is not bound yet
            if isinstance(inner, FunctionType):
                yield from functions_in(inner, seen)
    else:
        for inner in (getattr(value, "func", None), *getattr(value, "args", ())):
            if callable(inner):
                yield from functions_in(inner, seen)


def _is_torchs(function: FunctionType) -> bool:
    return _is_of_torch(function.__module__)


def _is_of_torch(module: Any) -> bool:
    return str(module).partition(".")[0] == "torch"
