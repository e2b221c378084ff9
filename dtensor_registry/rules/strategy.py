"""What a plugin contributes: a strategy for named ops, or a fallback for all others."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules.counterexample import Counterexample

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

MAX_ROWS = 100_000
"""Rows that a rule may give for one call, by default: thousands of times what a rule needs."""

Rule: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Sequence[Sequence[Any]]]
"""`rule(op, args, kwargs) -> rows`, with tensors given as metadata.

A row is a list of placements on ONE mesh dim: first one per tensor output, then one per
tensor input in schema order. The all-Replicate row is implied. This is the signature of
torch's own single-dim strategies (source: `torch.distributed.tensor._ops.single_dim_strategy`).
"""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """Which non-tensor arguments are part of torch's cache key for an op.

    Left out (`None` in a strategy), every non-tensor argument is in the key, which is
    always right. Narrow it only for an argument that changes from step to step and that
    no row depends on.

    Attributes:
        static_argnum: every positional argument from this index on is in the key.
        static_kwargkey: the keyword-only arguments in the key.
        needs_pytree: whether arguments hold lists of tensors.
    """

    static_argnum: int = 100
    static_kwargkey: tuple[str, ...] | None = None
    needs_pytree: bool = False


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A file and the line in it where something was written."""

    file: str
    line: int

    def __str__(self) -> str:
        # As Python would import it: `acme/rules.py:41`, not where site-packages happens to be.
        roots = [p for p in sys.path if p and self.file.startswith(p.rstrip(os.sep) + os.sep)]
        shown = os.path.relpath(self.file, max(roots, key=len)) if roots else self.file
        return f"{shown}:{self.line}"


@dataclass(frozen=True, slots=True)
class SingleDimStrategy:
    """A rule on one mesh dim for one or more ops.

    Args:
        op: an overload (`torch.ops.acme.swiglu.default`), a packet (all its overloads), what
            `torch.library.custom_op` returned, a name such as `"acme.swiglu.default"` or
            `"aten.mm"`, or a list of those. A name may belong to a library that is not
            imported yet.
        rule: a function `(op, args, kwargs) -> rows`, or a template such as `einsum("mk,kn->mn")`.
        schema_info: which non-tensor arguments are in torch's cache key; `None`: all of them.
            torch's own `RuntimeSchemaInfo` is taken too.
        allow_uneven_sharding: keep an input that is cut into more pieces than it has elements
            as it is, instead of refusing the row. Same meaning as in torch.
        allow_unbacked_sharding: what to assume of a size that is not known yet. Same meaning
            as in torch.
        allow_empty_pieces: cut a tensor also so that some ranks hold nothing of it (4 elements on
            3 ranks: 2, 2 and 0). Say False for an op whose kernel fails on an empty piece.
        random: `(args, kwargs) -> bool`, called with what the rule is called with: whether this
            call draws random numbers. None: every call does if torch's schema tags the op so
            (`nondeterministic_seeded`). What it reads must be in the cache key.
        variants: give the rule to the other forms of each op as well: in place, with `out=`, and
            over lists (`_foreach_`). They are found by their schemas. A rule that names such a
            form itself goes before.
        aliases: what arguments are called in other versions of the op: `{"grad": "grad_output"}`
            lets a rule that speaks of `grad` fit also where the op declares `grad_output`. Several
            other names are a list.
        samples: calls to check the rule with, `() -> Iterable[(args, kwargs)]`.
        replaces_handler: torch runs a few ops by handlers of its own, which pass rules over. The
            rule of a strategy that names the handler as `module.function` runs the op instead,
            but for the calls for which torch's own rule moves nothing. Where torch has another
            handler, the rule is left out with a warning.
        local_arguments: `(arguments, inputs, outputs) -> changes`: arguments that a rank passes
            otherwise than the whole call does, such as a size. `arguments` are those of the
            local call by name, `inputs` the local shape of each tensor by name, `outputs` the
            local shape of each output. The host then runs the op itself.
        shows: calls that torch alone has wrong, if the strategy is there to mend torch;
            `doctor --corrections` says when the torch at hand has them right.

    Raises:
        InvalidContributionError: for a part that cannot be what it should be.

    >>> from dtensor_registry.rules import einsum
    >>> SingleDimStrategy("acme::matmul", einsum("mk,kn->mn")).names
    ('acme.matmul',)
    """

    op: Any
    rule: Rule
    schema_info: Any = field(default=None, kw_only=True)
    allow_uneven_sharding: bool = field(default=False, kw_only=True)
    allow_unbacked_sharding: bool | None = field(default=None, kw_only=True)
    allow_empty_pieces: bool = field(default=True, kw_only=True)
    random: Callable[[tuple[Any, ...], dict[str, Any]], bool] | None = field(
        default=None, kw_only=True
    )
    variants: bool = field(default=False, kw_only=True)
    aliases: Any = field(default=(), kw_only=True)
    samples: Callable[[], Iterable[Any]] | None = field(default=None, kw_only=True)
    replaces_handler: str | None = field(default=None, kw_only=True)
    local_arguments: Callable[[Any, Any, Any], Mapping[str, Any]] | None = field(
        default=None, kw_only=True
    )
    shows: tuple[Counterexample, ...] = field(default=(), kw_only=True)
    names: tuple[str, ...] = field(init=False, compare=False)
    source: SourceLine = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ops = self.op if isinstance(self.op, (list, tuple)) else [self.op]
        if not ops:
            raise InvalidContributionError(
                "SingleDimStrategy(op=[]) names no op; name at least one"
            )
        if not callable(self.rule):
            raise InvalidContributionError(
                f"SingleDimStrategy({self.op!s}): rule is a {type(self.rule).__name__}, neither a"
                " function (op, args, kwargs) -> rows nor a template such as einsum('mk,kn->mn')"
            )
        if self.random is not None and not callable(self.random):
            raise InvalidContributionError(
                f"SingleDimStrategy({self.op!s}): random is a {type(self.random).__name__}; give a"
                " function (args, kwargs) -> bool, or None for what torch's schema says"
            )
        fields = ("static_argnum", "static_kwargkey", "needs_pytree")
        if self.schema_info is not None and not all(hasattr(self.schema_info, f) for f in fields):
            raise InvalidContributionError(
                f"SingleDimStrategy({self.op!s}): schema_info is a"
                f" {type(self.schema_info).__name__}; give a SchemaInfo, or None for the safe key"
            )
        object.__setattr__(self, "names", tuple(op_name(op) for op in ops))
        object.__setattr__(self, "aliases", _aliases(self.aliases, self.op))
        object.__setattr__(self, "source", _writer())


@dataclass(frozen=True, slots=True)
class FallbackStrategy:
    """A rule for ops that nobody has a rule for.

    Args:
        name: how settings and messages call it.
        rule: as for `SingleDimStrategy`; returning no rows keeps only all-Replicate.
        refuses: `(op) -> reason or None`, asked once per op; a reason ends up in the error.
        named_only: the rule is right for some ops only: it runs those that the setting
            `fallback.ops` names under it, and no others.
    """

    name: str
    rule: Rule
    refuses: Callable[[Any], str | None] | None = None
    named_only: bool = field(default=False, kw_only=True)
    source: SourceLine = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidContributionError(f"FallbackStrategy needs a name, got {self.name!r}")
        if not callable(self.rule):
            raise InvalidContributionError(f"FallbackStrategy {self.name!r}: rule is not callable")
        object.__setattr__(self, "source", _writer())


def op_name(op: object) -> str:
    """Write an op as DTensor's messages do: `aten.mm.default`, or `aten.mm` for a packet.

    Raises:
        InvalidContributionError: for something that names no op.

    >>> op_name("aten::mm.default"), op_name("acme::swiglu")
    ('aten.mm.default', 'acme.swiglu')
    """
    if isinstance(op, str):
        name = op.replace("::", ".")
    elif qualified := getattr(op, "_qualname", None):  # CustomOpDef has no public name
        name = str(qualified).replace("::", ".") + ".default"
    elif hasattr(op, "overloadpacket") or hasattr(op, "overloads"):
        name = str(op)
    else:
        raise InvalidContributionError(
            f"{op!r} is no op: give an overload, a packet, a custom op or a name such as"
            " 'aten.mm.default'"
        )
    parts = name.split(".")
    if len(parts) not in (2, 3) or not all(parts):
        raise InvalidContributionError(
            f"{name!r} is no op name: write 'namespace.op' or 'namespace.op.overload'"
        )
    return name


def _aliases(given: Any, op: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read the other names of arguments, sorted by name."""
    try:
        pairs = [(n, (o,) if isinstance(o, str) else tuple(o)) for n, o in dict(given).items()]
    except (TypeError, ValueError):
        pairs = [(None, ())]
    if not all(isinstance(name, str) for first, others in pairs for name in (first, *others)):
        raise InvalidContributionError(
            f"SingleDimStrategy({op!s}): aliases is {given!r}; give names of arguments, for"
            ' example {"grad": "grad_output"}'
        )
    return tuple(sorted(pairs))


def _writer() -> SourceLine:
    """Find the line that is building a strategy: the first frame outside this package."""
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        # "<string>" is the __init__ that dataclasses generate.
        if file != "<string>" and not file.startswith(_PACKAGE):
            return SourceLine(file, frame.f_lineno)
        frame = frame.f_back
    return SourceLine("<unknown>", 0)


def rule_source(strategy: SingleDimStrategy | FallbackStrategy) -> SourceLine:
    """Say where a rule was written: the function itself, or the line that built the template."""
    code = getattr(strategy.rule, "__code__", None)
    if code is None:
        return strategy.source
    return SourceLine(code.co_filename, code.co_firstlineno)


def rule_name(rule: Any) -> str:
    """Name a function; a template prints itself.

    >>> rule_name(len)
    'len'
    """
    return getattr(rule, "__name__", None) or str(rule)
