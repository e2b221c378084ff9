"""What an op's schema says about it, read once and in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo

from dtensor_registry.rules.signature import Parameter, Signature


@dataclass(frozen=True, slots=True)
class OpFacts:
    """One op's schema in the words of this package.

    Attributes:
        signature: its arguments, and how many tensors it returns, for the rules.
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

    signature: Signature
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
        tensors = [p for p in self.parameters if p.is_tensor]
        meshless = not any(p for p in tensors if not p.is_keyword and not p.may_be_none)
        moves_keyword = any(p.is_keyword and (p.is_list or not p.is_written) for p in tensors)
        written = [at for at, p in enumerate(self.parameters) if p.is_written and not p.is_keyword]
        writes_elsewhere = written not in ([], [0] if self.in_place else [])
        misnamed = self.named_out != any(p.is_keyword and p.is_written for p in tensors)
        misnamed = misnamed or (self.in_place and not self.mutates)
        return moves_keyword or meshless or self.optional_output or writes_elsewhere or misnamed

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments, as declared."""
        return self.signature.parameters

    @property
    def mutates(self) -> tuple[str, ...]:
        """Names of the arguments that the op writes to."""
        return tuple(p.name for p in self.parameters if p.is_written)

    @property
    def tensor_outputs(self) -> int:
        """How many entries of a row are outputs; 1 for a list, however long."""
        return self.signature.outputs


@cache
def facts(op: OpOverload) -> OpFacts:
    """Read an op's schema.

    >>> print(facts(torch.ops.aten.sum.dim_IntList).signature)
    aten.sum.dim_IntList(Tensor self, dim, keepdim=False, *, dtype=None)
    """
    schema = op._schema
    outputs = tuple(("Tensor" in str(r.type), _alias(r)) for r in schema.returns)
    written = [alias for is_tensor, alias in outputs if is_tensor]
    parameters = tuple(_parameter(argument, written) for argument in schema.arguments)
    return OpFacts(
        signature=Signature(str(op), parameters, len(written)),
        outputs=outputs,
        optional_output=any("Optional[Tensor]" in str(r.type) for r in schema.returns),
        list_output=len(outputs) == 1 and "List[Tensor]" in str(schema.returns[0].type),
        in_place=schema.name.endswith("_"),
        named_out="out" in schema.overload_name,
        random=torch.Tag.nondeterministic_seeded in op.tags,
        # Of a list of views, only the argument says that it is one.
        view=any(p.alias and not p.is_written for p in parameters),
        schema_info=_safe_key(parameters),
        # Sizes print as List[int] in some schemas and as List[SymInt] in others.
        sizes=tuple(
            p.name for p in parameters if "List[int]" in p.kind or "List[SymInt]" in p.kind
        ),
        complex_in_key=op.namespace not in ("aten", "prims")
        and any("number" in p.kind or "complex" in p.kind for p in parameters),
    )


def _parameter(argument: Any, outputs: Sequence[frozenset[str]]) -> Parameter:
    kind = str(argument.type)  # to print it takes as long as all else here together
    alias = _alias(argument)
    is_written = bool(argument.alias_info and argument.alias_info.is_write)
    is_out = argument.kwarg_only and is_written
    return Parameter(
        name=argument.name,
        is_tensor="Tensor" in kind,
        is_keyword=argument.kwarg_only,
        output=next((i for i, a in enumerate(outputs) if a & alias), None) if is_out else None,
        is_required=not argument.has_default_value(),
        default=argument.default_value,
        kind=kind,
        is_written=is_written,
        alias=alias,
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
) -> tuple[tuple[str, Parameter], ...]:
    """Name the tensors of one call in row order, lists by index, with what is declared of them.

    Args:
        op: the op.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        is_tensor: tells a tensor (or what stands for one) from other values.
    """
    found: list[tuple[str, Parameter]] = []
    for parameter, value in facts(op).signature.named(args, kwargs):
        if is_tensor(value):
            found.append((parameter.name, parameter))
        elif parameter.is_tensor and parameter.is_list and value is not None:
            items = getattr(value, "children", value)
            found += (
                (f"{parameter.name}[{i}]", parameter) for i, v in enumerate(items) if is_tensor(v)
            )
    return tuple(found)


def _alias(annotated: Any) -> frozenset[str]:
    info = annotated.alias_info
    return frozenset() if info is None else frozenset(info.before_set)


def _safe_key(parameters: Sequence[Parameter]) -> RuntimeSchemaInfo:
    """Put every non-tensor argument in the cache key; generators cannot be hashed into one.

    The key starts at the first argument, since a number can stand where a tensor is declared.
    """
    names = [p.name for p in parameters if p.is_keyword and "Generator" not in p.kind]
    return RuntimeSchemaInfo(
        static_argnum=0,
        static_kwargkey=names,
        needs_pytree=any(p.is_tensor and p.is_list for p in parameters),
    )
