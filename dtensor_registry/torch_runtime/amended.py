"""torch's own way to run an op, amended by a plugin for the calls that torch has wrong.

Nothing in torch's tables changes but the cache key: torch is asked as before, about a call whose
tensors are where a correction wants them. For an op with a handler of torch's the tensors are
moved before the handler runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.utils._pytree import tree_leaves, tree_map

from dtensor_registry.discovery import Origin
from dtensor_registry.errors import RefusedCallError, RuleError
from dtensor_registry.placements import Placements, show_placed
from dtensor_registry.rules import Amended, Compute, MoveFirst, PlacedCall, PlacedTensor, Refuse
from dtensor_registry.torch_runtime.arguments import read_arguments
from dtensor_registry.torch_runtime.conversion import placements_from_torch, placements_to_torch
from dtensor_registry.torch_runtime.schema import facts, input_names

Ask = Callable[[OpSchema], OutputSharding]
"""Asks torch's propagator about a call."""


@dataclass(frozen=True, slots=True, eq=False)
class AmendedTorch:
    """What a plugin says about the calls of one op that torch has wrong.

    Attributes:
        amended: the plugin's template.
        origin: whose it is.
    """

    amended: Amended
    origin: Origin

    def computation(self, schema: OpSchema | None) -> Callable[..., Any] | None:
        """Find what computes the result of a call in torch's place, if something is to.

        Raises:
            RefusedCallError: if the call is refused.
            RuleError: if the plugin's function fails.
        """
        if schema is None:
            return None
        outcome = self._outcome(schema)
        return outcome.function if isinstance(outcome, Compute) else None

    def note(self, schema: OpSchema) -> str | None:
        """Say what is done about a call that torch has wrong; None for one that is torch's."""
        outcome = self._outcome(schema)
        if outcome is None:
            return None
        done = "computed from other ops" if isinstance(outcome, Compute) else "moved first"
        return f"{done}, as torch has it wrong: {self.amended.because} ({self.origin})"

    def answer(self, schema: OpSchema, ask: Ask) -> OutputSharding:
        """Have torch decide a call, its tensors moved first where the plugin says so.

        Raises:
            RefusedCallError: if the call is refused.
            RuleError: if the plugin's function fails.
        """
        moves = self._moves(schema)
        if not moves:
            return ask(schema)
        moved = _moved(schema, moves)
        answer = ask(moved)
        redistributed = answer.redistribute_schema if answer.needs_redistribute else moved
        return OutputSharding(
            answer.output_spec,
            redistributed,
            needs_redistribute=True,
            use_val_from_redistribute_schema=answer.use_val_from_redistribute_schema,
        )

    def handler(self, torchs: Callable[..., Any]) -> Callable[..., Any]:
        """Stand before a handler of torch's: move tensors first, or compute the result."""

        def handle(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            call = read_arguments(op, args, kwargs, None)
            compute = self.computation(call.schema)
            if compute is not None:
                return compute(op, args, kwargs)
            moves = self._moves(call.schema)
            tensors = [
                tensor.redistribute(placements=placements_to_torch(moves[name]))
                if name in moves and isinstance(tensor, DTensor)
                else tensor
                for tensor, (name, _) in zip(call.tensors, call.declared, strict=True)
            ]
            return torchs(op, *call.replaced(tensors))

        return handle

    def _moves(self, schema: OpSchema) -> dict[str, Placements]:
        """Say where tensors go before torch is asked, by the names of their arguments."""
        outcome = self._outcome(schema)
        if not isinstance(outcome, MoveFirst):
            return {}
        declared = dict(_declared(schema))
        for name in outcome.placements:
            argument = declared.get(name)
            if argument is None or argument.is_written or argument.is_keyword:
                raise self._wrong(
                    schema,
                    f"it wants to move {name!r}, which is no tensor argument of the call that"
                    " torch can move: it is written to, passed by keyword alone, or not there",
                )
        return dict(outcome.placements)

    def _outcome(self, schema: OpSchema) -> MoveFirst | Compute | None:
        call = placed_call(schema)
        try:
            outcome = self.amended.amend(call)
        except Exception as error:
            raise self._wrong(schema, f"it raised {type(error).__name__}: {error}") from error
        if isinstance(outcome, Refuse):
            inputs = ", ".join(
                f"{name}: {tensor.shape}@{show_placed(tensor.placements)}"
                for name, tensor in call.tensors.items()
            )
            told = (outcome.because, inputs, outcome.advice)
            raise RefusedCallError(call.op, str(self.origin), *told)
        if not isinstance(outcome, (MoveFirst, Compute, type(None))):
            raise self._wrong(schema, f"it returned a {type(outcome).__name__}, no amendment")
        return outcome

    def _wrong(self, schema: OpSchema, problem: str) -> RuleError:
        return RuleError(str(schema.op), self.origin.plugin, str(self.origin), problem)


def placed_call(schema: OpSchema) -> PlacedCall:
    """Read a call, as torch's propagator writes it, for a correction."""
    op, args, kwargs = schema.op, schema.args_schema, schema.kwargs_schema
    specs = [v for v in tree_leaves((args, kwargs)) if isinstance(v, DTensorSpec)]
    tensors = {
        name: PlacedTensor(
            tuple(spec.shape),
            _dtype(spec),
            placements_from_torch(spec.placements),
            tuple(spec.mesh.shape),
            argument.is_written,
        )
        for spec, (name, argument) in zip(specs, _declared(schema), strict=True)
    }
    declared = facts(op).signature
    arguments: dict[str, Any] = {p.name: p.default for p in declared.parameters if not p.is_tensor}
    for parameter, value in declared.named(args, kwargs):
        if not parameter.is_tensor:
            arguments[parameter.name] = value
    return PlacedCall(str(op), tensors, arguments)


def _declared(schema: OpSchema) -> Any:
    return input_names(
        schema.op, schema.args_schema, schema.kwargs_schema, lambda v: isinstance(v, DTensorSpec)
    )


def _moved(schema: OpSchema, moves: Mapping[str, Placements]) -> OpSchema:
    """Write a call anew, some of its tensors in other places."""
    names = iter([name for name, _ in _declared(schema)])

    def place(value: Any) -> Any:
        if not isinstance(value, DTensorSpec):
            return value
        name = next(names)
        if name not in moves:
            return value
        placements = placements_to_torch(moves[name])
        return DTensorSpec(value.mesh, placements, tensor_meta=value.tensor_meta)

    args, kwargs = tree_map(place, (schema.args_schema, schema.kwargs_schema))
    return OpSchema(schema.op, args, kwargs, schema.schema_info)


def _dtype(spec: DTensorSpec) -> torch.dtype | None:
    return None if spec.tensor_meta is None else spec.tensor_meta.dtype
