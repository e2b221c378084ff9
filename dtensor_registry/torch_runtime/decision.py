"""What was decided for one call, and how those who look at calls get to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.utils._pytree import tree_leaves

from dtensor_registry.discovery import Origin
from dtensor_registry.planner import Candidate
from dtensor_registry.torch_runtime.call import Call
from dtensor_registry.torch_runtime.installed_rule import InstalledRule, TorchRule

Spec: TypeAlias = DTensorSpec
"""One tensor of a call: its mesh, placements and metadata."""

Specs: TypeAlias = tuple[Spec, ...]
"""The tensors of a call, in row order."""

Decider: TypeAlias = Literal["rule", "torch rule", "torch", "decomposition", "fallback", "handler"]
"""Who gives the answer: a rule of a plugin, a context or this process; torch's single-dim rule,
expanded by the host; torch's own path; its decomposition; a fallback; a handler of torch's."""

Kind: TypeAlias = Literal["none", "fallback", "plugin", "decomposition", "torch", "program"]
"""Who decided: nobody, a fallback, a plugin (or a context, or this process), torch from what the
op is made of, torch's own rule or handler, or the program that moved a tensor by itself."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who decides an op.

    Attributes:
        name: a plugin, `torch`, `fallback <name>`, `decomposition`, `handler`, `context`, ...
        kind: what kind of party that is.
        decider: by what it decides.
        origin: whose rule it is; None where that is nobody's of whom the host knows more.
    """

    name: str
    kind: Kind
    decider: Decider
    origin: Origin | None = None


HANDLER = Owner("handler", "torch", "handler")
"""A handler of torch's, which runs an op itself."""


def owner_of_rule(rule: InstalledRule) -> Owner:
    """Say whose a rule is."""
    if rule.fallback is not None:
        return Owner(f"fallback {rule.fallback}", "fallback", "fallback", rule.origin)
    return Owner(rule.origin.plugin, "plugin", "rule", rule.origin)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one call. Dispatch writes it; it is never made a second time.

    Attributes:
        schema: the call, its tensors given as specs or as strategies.
        question: the same as the rule was asked, its tensors given as strategies, if one was; for
            an op over lists the question of the first element.
        owner: who decides the op; None until it is known.
        rule: what gave the rows, or None where no rows decided.
        call: the call as a question of rows; pieces without elements are not offered in it where
            the op would have raised on them.
        choices: what was chosen; several where an input has several sources.
        passed_over: why the rule's rows were passed over for torch's decomposition; empty if they
            were not.
        elements: how many elements of lists were decided each by itself; `call` is the first.
        executed: whether the host runs the op itself.
        answer: what torch's propagator answered, if it was asked and did.
        planned: for an op that the host runs itself, where each tensor goes, and one entry per
            return, or None as a whole where no shape is known beforehand.
        error: what was raised, or None.
    """

    schema: OpSchema
    question: OpSchema | None = None
    owner: Owner | None = None
    rule: InstalledRule | TorchRule | None = None
    call: Call | None = None
    choices: tuple[Candidate, ...] = ()
    passed_over: str = ""
    elements: int = 0
    executed: bool = False
    answer: OutputSharding | None = None
    planned: tuple[Specs, Any] | None = None
    error: Exception | None = None

    @property
    def inputs(self) -> Specs:
        """The tensors of the call as they came."""
        return specs_in(self.schema)

    @property
    def wanted(self) -> Specs | None:
        """Where each tensor goes; None if nothing was decided."""
        if self.planned is not None:
            return self.planned[0]
        if self.answer is None:
            return None
        moved = self.answer.redistribute_schema if self.answer.needs_redistribute else None
        return self.inputs if moved is None else specs_in(moved)

    @property
    def decider(self) -> Decider | None:
        """Who gave the answer; None while that is not known."""
        if self.passed_over and self.error is None:
            return "decomposition"
        if isinstance(self.rule, InstalledRule):
            return "rule" if self.rule.fallback is None else "fallback"
        if isinstance(self.rule, TorchRule):
            return "torch rule"
        return None if self.owner is None else self.owner.decider


def specs_in(schema: OpSchema | None) -> Specs:
    """List the tensors of a call as torch's propagator describes it."""
    if schema is None:
        return ()
    leaves = tree_leaves((schema.args_schema, schema.kwargs_schema))
    return tuple(leaf for leaf in leaves if isinstance(leaf, DTensorSpec))


Receiver: TypeAlias = Callable[[Decision], None]

_receiver: ContextVar[Receiver | None] = ContextVar("dtensor_registry_decisions", default=None)


def report(decision: Decision) -> None:
    """Give a decision to whoever asked to see those of this thread."""
    receive = _receiver.get()
    if receive is not None:
        receive(decision)


@contextmanager
def recording(receive: Receiver) -> Iterator[None]:
    """See what is decided in the block, on this thread; blocks may be nested."""
    outer = _receiver.get()

    def tell(decision: Decision) -> None:
        receive(decision)
        if outer is not None:
            outer(decision)

    token = _receiver.set(tell)
    try:
        yield
    finally:
        _receiver.reset(token)


class Deciding:
    """A call that is being decided; an error is reported as what became of it.

    What is decided of the op's parts on the way, to follow its decomposition, is not reported.
    """

    def __init__(self, schema: OpSchema, **known: Any) -> None:
        self._schema = schema
        self._known = known
        self._latest: Decision | None = None

    def __enter__(self) -> Deciding:
        self._token = _receiver.set(self._note)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        _receiver.reset(self._token)
        if isinstance(error, Exception):
            report(self.made(error=error))

    def made(self, **known: Any) -> Decision:
        """Give what was decided, with what else is known of it now."""
        known = {"schema": self._schema, **self._known, **known}
        return Decision(**known) if self._latest is None else replace(self._latest, **known)

    def _note(self, decision: Decision) -> None:
        if decision.schema.op is self._schema.op:
            self._latest = decision
