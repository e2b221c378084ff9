"""What an op's schema says about it, read once and in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo


@dataclass(frozen=True, slots=True)
class Argument:
    """One declared argument.

    Attributes:
        name: as declared.
        kind: the declared type, as torch prints it.
        tensor: whether it holds a tensor or tensors.
        many: whether it is a list.
        optional: whether it, or an element of it, may be None.
        keyword: whether it can only be passed by name.
        mutated: whether the op writes to it.
        alias: the alias sets it is in, for example `{"a"}`.
    """

    name: str
    kind: str
    tensor: bool
    many: bool
    optional: bool
    keyword: bool
    mutated: bool
    alias: frozenset[str]


@dataclass(frozen=True, slots=True)
class OpFacts:
    """One op's schema in the words of this package.

    Attributes:
        arguments: as declared.
        outputs: for each return, whether it is a tensor, and its alias sets.
        optional_output: whether a return that is declared as a tensor may be None.
        list_output: whether the op returns one list of tensors, of a length only known
            when it runs.
        in_place: whether the op is named as one that writes to its first argument.
        named_out: whether the overload is named as one that writes to its outputs.
        random: whether equal inputs may give unequal outputs.
        view: whether an output shares memory with an input that the op does not write to.
        schema_info: the safe cache key: every non-tensor argument is in it.
        sizes: arguments that are lists of ints, and may be sizes.
        complex_in_key: whether the safe cache key of a custom op may hold a complex number,
            which torch's C++ cannot hash: the call would fail before anybody is asked. ATen's
            own ops fail so under bare torch; for them the fast path counts more.
    """

    arguments: tuple[Argument, ...]
    outputs: tuple[tuple[bool, frozenset[str]], ...]
    optional_output: bool
    list_output: bool
    in_place: bool
    named_out: bool
    random: bool
    view: bool
    schema_info: RuntimeSchemaInfo
    sizes: tuple[str, ...]
    complex_in_key: bool

    @property
    def beyond_torch(self) -> bool:
        """Whether torch's own path cannot run the op right, whatever is decided.

        It never moves a keyword tensor; it finds no mesh in a list of them, nor in a list that
        may begin with None; it counts an output that may be None as no tensor; and it gives
        the argument back that an op wrote to only if that is `self` of an op named with a
        trailing underscore, or a keyword of an overload with "out" in its name. It goes by the
        names alone: `x << 2`, which is `__lshift__`, gives x itself back, and
        `_slow_conv2d_backward.output_mask` fails for want of such a keyword.
        """
        tensors = [a for a in self.arguments if a.tensor]
        meshless = not any(a for a in tensors if not a.keyword and not a.optional)
        moves_keyword = any(a.keyword and (a.many or not a.mutated) for a in tensors)
        written = [at for at, a in enumerate(self.arguments) if a.mutated and not a.keyword]
        writes_elsewhere = written not in ([], [0] if self.in_place else [])
        misnamed = self.named_out != any(a.keyword and a.mutated for a in tensors)
        misnamed = misnamed or (self.in_place and not self.mutates)
        return moves_keyword or meshless or self.optional_output or writes_elsewhere or misnamed

    @property
    def mutates(self) -> tuple[str, ...]:
        """Names of the arguments that the op writes to."""
        return tuple(a.name for a in self.arguments if a.mutated)

    @property
    def tensor_outputs(self) -> int:
        """How many entries of a row are outputs; 1 for a list, however long."""
        return sum(tensor for tensor, _ in self.outputs)


@cache
def facts(op: OpOverload) -> OpFacts:
    """Read an op's schema."""
    schema = op._schema
    arguments = tuple(
        Argument(
            name=argument.name,
            kind=kind,
            tensor="Tensor" in kind,
            many="List[" in kind,
            optional="Optional[" in kind,
            keyword=argument.kwarg_only,
            mutated=bool(argument.alias_info and argument.alias_info.is_write),
            alias=_alias(argument),
        )
        # To print a type takes as long as all else here together.
        for argument, kind in ((argument, str(argument.type)) for argument in schema.arguments)
    )
    outputs = tuple(("Tensor" in str(r.type), _alias(r)) for r in schema.returns)
    return OpFacts(
        arguments=arguments,
        outputs=outputs,
        optional_output=any("Optional[Tensor]" in str(r.type) for r in schema.returns),
        list_output=len(outputs) == 1 and "List[Tensor]" in str(schema.returns[0].type),
        in_place=schema.name.endswith("_"),
        named_out="out" in schema.overload_name,
        random=torch.Tag.nondeterministic_seeded in op.tags,
        # Of a list of views, only the argument says that it is one.
        view=any(a.alias and not a.mutated for a in arguments),
        schema_info=_safe_key(arguments),
        # Sizes print as List[int] in some schemas and as List[SymInt] in others.
        sizes=tuple(a.name for a in arguments if "List[int]" in a.kind or "List[SymInt]" in a.kind),
        complex_in_key=op.namespace not in ("aten", "prims")
        and any("number" in a.kind or "complex" in a.kind for a in arguments),
    )


def runtime_schema_info(op: OpOverload, given: Any) -> RuntimeSchemaInfo:
    """Write a strategy's `schema_info`, ours or torch's own; None gives the safe key."""
    if given is None:
        return facts(op).schema_info
    # A list, even an empty one, puts the placements of keyword tensors in the key, and gives
    # the op another key than torch's own None does: what threads cached before is not found.
    names = list(given.static_kwargkey or ())
    return RuntimeSchemaInfo(given.static_argnum, names, given.needs_pytree)


def input_names(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], is_tensor: Any
) -> tuple[tuple[str, Argument], ...]:
    """Name the tensors of one call in row order, lists by index, with what is declared of them.

    Args:
        op: the op.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        is_tensor: tells a tensor (or what stands for one) from other values.
    """
    declared = facts(op).arguments
    named = {argument.name: argument for argument in declared}
    pairs = [*zip(declared, args, strict=False), *((named[k], v) for k, v in kwargs.items())]
    found: list[tuple[str, Argument]] = []
    for argument, value in pairs:
        if is_tensor(value):
            found.append((argument.name, argument))
        elif argument.tensor and argument.many and value is not None:
            items = getattr(value, "children", value)
            found += (
                (f"{argument.name}[{i}]", argument) for i, v in enumerate(items) if is_tensor(v)
            )
    return tuple(found)


def _alias(annotated: Any) -> frozenset[str]:
    info = annotated.alias_info
    return frozenset() if info is None else frozenset(info.before_set)


def _safe_key(arguments: Sequence[Argument]) -> RuntimeSchemaInfo:
    """Put every non-tensor argument in the cache key; generators cannot be hashed into one.

    The key starts at the first argument, since a number can stand where a tensor is declared.
    """
    names = [a.name for a in arguments if a.keyword and "Generator" not in a.kind]
    return RuntimeSchemaInfo(
        static_argnum=0,
        static_kwargkey=names,
        needs_pytree=any(a.tensor and a.many for a in arguments),
    )
