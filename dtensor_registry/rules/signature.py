"""An op's schema as a template sees it: arguments by name, and which of them hold tensors.

A rule is given the arguments of a call by position, as torch passes them, and without names. A
template that speaks of arguments by name is *bound* to its op's signature when it is installed:
that is when a wrong name comes up, and where defaults that a call leaves out are known from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

from dtensor_registry.placements import (
    REPLICATE,
    Partial,
    Replicate,
    Shard,
    ShardingPlaceholder,
    StridedShard,
)
from dtensor_registry.rules.metadata import is_tensor, tensor_inputs
from dtensor_registry.rules.strategy import Rule

Entry: TypeAlias = Replicate | Partial | Shard | StridedShard | ShardingPlaceholder
"""What a row says of one tensor."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One declared argument of an op.

    Attributes:
        name: as declared.
        is_tensor: whether it holds a tensor or a list of them.
        is_keyword: whether it can only be passed by name.
        output: the output that the op writes to it, for an `out=` argument, counted from 0.
        is_required: whether every call has it.
        default: what a call that leaves it out means.
        kind: the declared type, as torch prints it.
        is_written: whether the op writes to it.
        alias: the alias sets it is in, for example `{"a"}`.
    """

    name: str
    is_tensor: bool = False
    is_keyword: bool = False
    output: int | None = None
    is_required: bool = True
    default: Any = None
    kind: str = ""
    is_written: bool = False
    alias: frozenset[str] = frozenset()

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return "List[" in self.kind

    @property
    def may_be_none(self) -> bool:
        """Whether it, or an element of it, may be None."""
        return "Optional[" in self.kind


@dataclass(frozen=True, slots=True)
class Signature:
    """What is declared of one op.

    Attributes:
        op: its name, for messages.
        parameters: in the order of the schema.
        outputs: how many tensors it returns; 1 for a list of them.
        aliases: pairs of a name that a rule uses and the declared name of that argument.

    >>> x, dim = Parameter("x", is_tensor=True), Parameter("dim", is_required=False, default=-1)
    >>> signature = Signature("acme.f.default", (x, dim))
    >>> str(signature), signature.argument("dim", ("tensor",), {})
    ('acme.f.default(Tensor x, dim=-1)', -1)
    """

    op: str
    parameters: tuple[Parameter, ...]
    outputs: int = 1
    aliases: tuple[tuple[str, str], ...] = ()

    def with_aliases(self, aliases: Iterable[tuple[str, Sequence[str]]]) -> Signature:
        """Let a rule call an argument by a name that it has in another version of the op.

        Args:
            aliases: a name, and the other names of the same argument; the first of these that
                the op declares counts, and none does if it declares the name itself.

        >>> grad = Signature("acme.f.default", (Parameter("grad_output", is_tensor=True),))
        >>> grad.with_aliases([("grad", ("g", "grad_output"))]).parameter("grad").name
        'grad_output'
        """
        declared = {parameter.name for parameter in self.parameters}
        found = (
            (name, next((other for other in others if other in declared), None))
            for name, others in aliases
            if name not in declared
        )
        return replace(self, aliases=tuple((n, other) for n, other in found if other is not None))

    @property
    def operands(self) -> tuple[str, ...]:
        """The tensor arguments, without those that are there to be written to."""
        return tuple(p.name for p in self.parameters if p.is_tensor and p.output is None)

    def parameter(self, name: str) -> Parameter | None:
        """Find an argument by its name, or by one that a rule may use for it."""
        declared = dict(self.aliases).get(name, name)
        return next((p for p in self.parameters if p.name == declared), None)

    def argument(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an argument is in one call, its default where the call leaves it out."""
        wanted = self.parameter(name)
        if wanted is None:
            return None
        for parameter, value in self.named(args, kwargs):
            if parameter.name == wanted.name:
                return value
        return wanted.default

    def named(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[Parameter, Any]]:
        """Pair what a call passes with the arguments it passes it for, positional ones first."""
        positional = [parameter for parameter in self.parameters if not parameter.is_keyword]
        yield from zip(positional, args, strict=False)
        for name, value in kwargs.items():
            parameter = self.parameter(name)
            if parameter is not None:
                yield parameter, value

    def __str__(self) -> str:
        shown = []
        for parameter in self.parameters:
            if parameter.is_keyword and "*" not in shown:
                shown.append("*")
            kind = "Tensor " if parameter.is_tensor else ""
            default = "" if parameter.is_required else f"={parameter.default!r}"
            shown.append(f"{kind}{parameter.name}{default}")
        return f"{self.op}({', '.join(shown)})"


RuleOf: TypeAlias = Callable[[str], tuple[Rule, Signature]]
"""Finds the rule that another op has, bound, and that op's signature."""


@runtime_checkable
class Bindable(Protocol):
    """A template that wants to know its op's signature before it is asked for rows."""

    def bound(self, signature: Signature, rule_of: RuleOf) -> Rule:
        """Return the rule for one op.

        Args:
            signature: of that op.
            rule_of: finds the rule of another op; raises if that has none.

        Raises:
            InvalidContributionError: if the template does not fit the op.
        """


def bind(rule: Rule, signature: Signature, rule_of: RuleOf) -> Rule:
    """Bind a rule to its op, if it is one that wants it."""
    return rule.bound(signature, rule_of) if isinstance(rule, Bindable) else rule


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one tensor of a call in a row.

    Attributes:
        tensor: its metadata.
        name: how messages call it.
        operand: which of the op's operands it is, or is an element of; None if it is none.
        output: the output that the op writes to it, or None.
    """

    tensor: Any
    name: str
    operand: int | None
    output: int | None = None


def seats(
    args: Sequence[Any], kwargs: Mapping[str, Any], signature: Signature | None = None
) -> tuple[Seat, ...]:
    """List the tensors of a call in row order, and say which operand each is.

    Without a signature each tensor is an operand of its own, and what is passed as `out` are
    the outputs. With one an operand is an argument: it may be left out, or be a list.

    >>> from dtensor_registry.rules.metadata import TensorMeta
    >>> x = TensorMeta((2,), (1,), None)
    >>> [(seat.name, seat.operand, seat.output) for seat in seats((x, 3), {"out": x, "y": x})]
    [('input 1', 0, None), ('out', None, 0), ('y', 1, None)]
    """
    if signature is not None:
        return tuple(_declared_seats(signature, args, kwargs))
    found: list[Seat] = []
    given: list[tuple[str | None, Any]] = [*((None, value) for value in args), *kwargs.items()]
    operands = 0
    for name, value in given:
        for index, tensor in enumerate(tensor_inputs((value,), {})):
            if name == "out":
                found.append(Seat(tensor, name, None, index))
                continue
            operands += 1
            found.append(Seat(tensor, name or f"input {operands}", operands - 1))
    return tuple(found)


def _declared_seats(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Seat]:
    numbers = {name: number for number, name in enumerate(signature.operands)}
    for parameter, value in signature.named(args, kwargs):
        for name, tensor in named_tensors(parameter.name, value):
            yield Seat(tensor, name, numbers.get(parameter.name), parameter.output)


def named_tensors(argument: str, value: Any) -> Iterator[tuple[str, Any]]:
    """List the tensors in an argument, and how each is called: `x`, or `xs[0]` in a list."""
    many = isinstance(value, (list, tuple)) and not is_tensor(value)
    for index, tensor in enumerate(tensor_inputs((value,), {})):
        yield f"{argument}[{index}]" if many else argument, tensor


def seated(
    outputs: Sequence[Entry], places: Iterable[Seat], entries: Mapping[str, Entry]
) -> list[Entry]:
    """Write a row: the outputs' entries, then each tensor's.

    A tensor that is written to is placed as its output; one without an entry stays whole.
    """
    return [
        *outputs,
        *(
            entries.get(seat.name, REPLICATE) if seat.output is None else outputs[seat.output]
            for seat in places
        ),
    ]
