"""What the program itself registers through torch's public `register_sharding`.

torch writes such a function to its table of full-mesh strategies and asks it only where its
table of single-dim rules has nothing, so it is ignored for ops such as `aten.relu.default`.
While the host is installed it is obeyed for every op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo

from dtensor_registry.discovery import PROGRAM, Origin
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.torch_patch.table_patcher import ABSENT, LEDGER, Cell, table_entries
from dtensor_registry.torch_runtime.dispatcher import propagator

REGISTER = "register_op_strategy"
"""The method of torch's propagator that `register_sharding` calls."""

STRATEGIES = "op_strategy_funcs"
"""The table that it writes to."""

_WRITER = "torch.distributed.tensor.experimental._register_sharding"


@dataclass(frozen=True, slots=True)
class Registered:
    """One registration of the program.

    Attributes:
        op: the op that it is for.
        strategy: what torch made of it, `(op_schema) -> OpStrategy`.
        schema_info: what torch would have in its cache key; None: nothing was said.
    """

    op: OpOverload
    strategy: functools.partial[Any]
    schema_info: RuntimeSchemaInfo | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """The program's own function."""
        return function_of(self.strategy)

    @property
    def origin(self) -> Origin:
        """Whose it is, and where the function was written."""
        function: Any = self.function
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if code is None:  # an object that can be called
            code = getattr(type(function).__call__, "__code__", None)
        source = ("<unknown>", 0) if code is None else (code.co_filename, code.co_firstlineno)
        return Origin(PROGRAM, PROGRAM, "", SourceLine(*source))

    def cells(self) -> dict[Cell, Any]:
        """Say what torch writes for it."""
        info: dict[Cell, Any] = {}
        if self.schema_info is not None:
            info["op_to_schema_info", self.op] = self.schema_info
        return {(STRATEGIES, self.op): self.strategy, **info}


def is_programs(strategy: Any) -> bool:
    """Say whether an entry of torch's table was written by the program's `register_sharding`.

    torch's own modules may call it as well; what they register is torch's.
    """
    if not isinstance(strategy, functools.partial) or not strategy.args:
        return False
    if getattr(strategy.func, "__module__", None) != _WRITER:
        return False
    module = getattr(function_of(strategy), "__module__", None) or ""
    return module.partition(".")[0] != "torch"


def function_of(strategy: functools.partial[Any]) -> Callable[..., Any]:
    """Find the function that was given to `register_sharding`."""
    function: Callable[..., Any] = strategy.args[0]
    return function


def registered() -> dict[OpOverload, Registered]:
    """List what the program has registered, whatever is written over it."""
    ops = {*table_entries(STRATEGIES), *LEDGER.ops(STRATEGIES)}
    found = {op: LEDGER.original(STRATEGIES, op) for op in ops}
    programs = (op for op, strategy in found.items() if is_programs(strategy))
    return {op: Registered(op, found[op]) for op in sorted(programs, key=str)}


def origins() -> dict[OpOverload, Origin]:
    """Say for which ops the program registered a function, and where that was written."""
    return {op: known.origin for op, known in registered().items()}


def hook_in(register: Callable[[Registered], None]) -> None:
    """Have later calls of `register_sharding` go to the host; all other calls stay torch's.

    Args:
        register: takes what the program registers.
    """
    prop = propagator()
    torch_register = getattr(prop, REGISTER)

    def register_op_strategy(
        op_overload: OpOverload,
        strategy_func: Callable[..., Any],
        schema_info: RuntimeSchemaInfo | None = None,
    ) -> None:
        if is_programs(strategy_func):
            assert isinstance(strategy_func, functools.partial)
            register(Registered(op_overload, strategy_func, schema_info))
        else:
            torch_register(op_overload, strategy_func, schema_info)

    setattr(prop, REGISTER, register_op_strategy)


def unhook() -> None:
    """Give torch's propagator its own method back."""
    propagator().__dict__.pop(REGISTER, None)


def held_before(known: Registered) -> dict[Cell, Any]:
    """Take down what torch has where a registration is about to be written."""
    return {
        (table, op): ABSENT if (value := LEDGER.original(table, op)) is None else value
        for table, op in known.cells()
    }
