"""The rule of another op, for an op of the same shape, or of one that can be mapped to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules.signature import RuleOf, Signature, named_tensors, seated, seats
from dtensor_registry.rules.strategy import Rule, op_name


@dataclass(frozen=True, slots=True)
class Like:
    """A template that stands for whatever rule `op` has when the host resolves.

    The host binds it to the winner's rule for `op` (a plugin's, or torch's own), so it is
    never called itself.

    Attributes:
        op: the overload to take the rule of.
        mapping: what each argument of `op` is: the name of an argument of ours, or a value;
            None: arguments are the same in kind and order.
    """

    op: str
    mapping: tuple[tuple[str, Any], ...] | None = None

    def __call__(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sequence[Sequence[Any]]:
        """Refuse: a stand-in has no rows of its own."""
        raise InvalidContributionError(
            f"like({self.op!r}) was asked for rows of {op} before it was resolved;"
            " use it only as the rule of a strategy that is installed"
        )

    def bound(self, signature: Signature, rule_of: RuleOf) -> Rule:
        """Return the rule of the other op, or that rule behind the mapping.

        Raises:
            InvalidContributionError: if the mapping names an argument that one of the ops does
                not have, or leaves out one that the other op needs.
        """
        rule, theirs = rule_of(self.op)
        if self.mapping is None:
            return rule
        return Mapped(rule, tuple(self._mapped(signature, theirs).items()), signature, theirs)

    def _mapped(self, ours: Signature, theirs: Signature) -> dict[str, Any]:
        """Write the mapping by the names that the ops declare."""
        mapped: dict[str, Any] = {}
        for name, source in self.mapping or ():
            argument = theirs.parameter(name)
            if argument is None:
                raise InvalidContributionError(f"{self}: {theirs} has no argument {name!r}")
            if isinstance(source, str):
                given = ours.parameter(source)
                if given is None:
                    raise InvalidContributionError(f"{self}: {ours} has no argument {source!r}")
                source = given.name
            mapped[argument.name] = source
        missing = [p.name for p in theirs.parameters if p.is_required and p.name not in mapped]
        if missing:
            raise InvalidContributionError(
                f"{self} does not say what {missing[0]!r} of {theirs} is; name an argument of"
                f" {ours}, or give a value"
            )
        if ours.outputs != theirs.outputs:
            raise InvalidContributionError(
                f"{self}: {theirs.op} returns {theirs.outputs} tensor(s), {ours.op} {ours.outputs}"
            )
        return mapped

    def __str__(self) -> str:
        if self.mapping is None:
            return f"like({self.op})"
        said = ", ".join(f"{name}={source!r}" for name, source in self.mapping)
        return f"like({self.op}, {said})"


@dataclass(frozen=True, slots=True)
class Mapped:
    """The rule of another op, asked as that op would be called.

    An argument of ours that is mapped to nothing does not bear on how the others are cut, so
    a tensor in it stays whole. A row that would place one tensor in two ways is left out.

    Attributes:
        rule: of the other op.
        mapping: see `Like`.
        ours: signature of the op that the rows are for.
        theirs: signature of the other op.
    """

    rule: Rule
    mapping: tuple[tuple[str, Any], ...]
    ours: Signature
    theirs: Signature

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
        """Return the rows for one call of our op."""
        tensors, their_args, their_kwargs = self._translated(args, kwargs)
        places = seats(args, kwargs, self.ours)
        rows = []
        for row in self.rule(op, their_args, their_kwargs):
            outputs, inputs = row[: -len(tensors) or None], row[len(row) - len(tensors) :]
            placed: dict[str, Any] = {}
            for name, entry in zip(tensors, inputs, strict=True):
                if placed.setdefault(name, entry) != entry:
                    break
            else:
                rows.append(seated(outputs, places, placed))
        return rows

    def _translated(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[str], tuple[Any, ...], dict[str, Any]]:
        """Write a call as the other op's, and list which tensor of ours each of its tensors is."""
        mapped = dict(self.mapping)
        tensors: list[str] = []
        values: dict[str, Any] = {}
        for parameter in self.theirs.parameters:
            source = mapped.get(parameter.name, parameter.default)
            if parameter.name in mapped and isinstance(source, str):
                values[parameter.name] = self.ours.argument(source, args, kwargs)
                tensors += (name for name, _ in named_tensors(source, values[parameter.name]))
            else:
                values[parameter.name] = source
        positional = [p.name for p in self.theirs.parameters if not p.is_keyword]
        while positional and positional[-1] not in mapped:
            positional.pop()
        by_name = {p.name: values[p.name] for p in self.theirs.parameters if p.is_keyword}
        return (
            tensors,
            tuple(values[name] for name in positional),
            {name: value for name, value in by_name.items() if name in mapped},
        )


def like(op: object, /, **arguments: Any) -> Like:
    """Use the rule of `op`.

    Args:
        op: the overload to take the rule of, for example `"aten.topk.default"`.
        arguments: what each argument of `op` is: the name of an argument of ours, or a value.
            Without any, our arguments must be the same in kind and order.

    Raises:
        InvalidContributionError: if `op` does not name one overload.

    >>> str(like("aten::mm.default"))
    'like(aten.mm.default)'
    >>> str(like("aten.topk.default", self="scores", k="count", dim=-1))
    "like(aten.topk.default, dim=-1, k='count', self='scores')"
    """
    name = op_name(op)
    if name.count(".") != 2:
        raise InvalidContributionError(
            f"like({name!r}) must name one overload, e.g. '{name}.default'"
        )
    return Like(name, tuple(sorted(arguments.items())) or None)
