"""Rows of a fused op, found by tracing plain PyTorch that computes the same.

Each way of placing the inputs on one mesh dim is followed through the reference by the rules
that are in force. Where no op wants an input moved, the placements of the outputs are known,
and that is a row. What is found is held against the fused op itself, on pieces of whole
tensors, and written down as a value, for the author to look at and to keep.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from dtensor_registry.errors import DerivationError
from dtensor_registry.placements import REPLICATE, Partial, Placement, Shard, ShardingPlaceholder
from dtensor_registry.rules import NamedRow, Rule, Signature
from dtensor_registry.rules.frozen import Case, Frozen, seen_of
from dtensor_registry.rules.signature import seats
from dtensor_registry.rules.strategy import op_name
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry_kit.derivation.tracing import Moved, trace
from dtensor_registry_kit.judging.check import check
from dtensor_registry_kit.samples.sample import Sample, sample_of
from dtensor_registry_kit.torch_private import OpOverload

_MESHES = (2, 3)
"""Meshes that are traced on; a row must come out on each that can cut so far."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """What was derived, to be looked at; printed, it is the source of the rule.

    Attributes:
        op: what the rule is for.
        rule: the rows that were found and not refuted.
        passed: the ops that the reference passes through.
        refuted: rows that were found, and why they are not in the rule.
    """

    op: str
    rule: Frozen
    passed: tuple[str, ...]
    refuted: tuple[tuple[NamedRow, str], ...]

    def __str__(self) -> str:
        message = [f"# {self.op}, derived through {', '.join(self.passed) or 'no op'}"]
        message += [f"# left out: {row}: {evidence}" for row, evidence in self.refuted]
        return "\n".join([*message, str(self.rule)])


def derive(
    op: Any,
    samples: Iterable[Any],
    reference: Callable[..., Any],
    *,
    ignore: Iterable[str] = (),
    partials: Sequence[str] = ("sum",),
    most: int = 2000,
) -> Derivation:
    """Derive a rule for a fused op from a reference in plain PyTorch.

    The rule holds for calls like the samples: as many dims, and the same arguments beside. For
    any other call it has no rows. The rules of the reference's ops are those in force, so
    install plugins before.

    Args:
        op: the fused op: an overload, what `torch.library.custom_op` returned, or a name.
        samples: calls of it, each a pair `(args, kwargs)` with plain tensors.
        reference: takes the same arguments and computes the same.
        ignore: arguments that no row depends on, such as an epsilon; any value of them will do.
        partials: reductions to look for in inputs.
        most: how many ways of placing the inputs of one call may be tried.

    Raises:
        DerivationError: if the op does not exist, the reference cannot be traced or returns
            another number of tensors, or there would be too much to try.
    """
    found = op_to_derive(op)
    known = facts(found).signature
    unknown = sorted(set(ignore) - {parameter.name for parameter in known.parameters})
    if unknown:
        raise DerivationError(f"ignore names {unknown[0]!r}, which {known} does not have")
    calls = [sample_of(sample) for sample in samples]
    traced: dict[tuple[tuple[str, Any], ...], tuple[NamedRow, ...]] = {}
    passed: dict[str, None] = {}
    for call in calls:
        when = _when(known, call, frozenset(ignore))
        rows = tuple(_traced_rows(known, call, reference, partials, most, passed))
        # Calls of one case have those rows in common that hold for each of them.
        traced[when] = tuple(row for row in traced.get(when, rows) if row in rows)
    rule = Frozen(tuple(Case(rows, when) for when, rows in traced.items()))
    return _proven(found, known, calls, rule, tuple(passed))


def op_to_derive(op: Any) -> OpOverload:
    """Find the overload that a rule is to be derived for; of a name without one, the default.

    Raises:
        DerivationError: if there is no such op.

    >>> op_to_derive("aten.mm")
    <OpOverload(op='aten.mm', overload='default')>
    """
    name = op_name(op)
    found = find_op(name if name.count(".") == 2 else f"{name}.default")
    if found is None:
        raise DerivationError(f"{name} does not exist: import what defines it first")
    return found


def _when(known: Signature, call: Sample, ignored: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (parameter.name, seen_of(known.argument(parameter.name, call.args, call.kwargs)))
        for parameter in sorted(known.parameters, key=lambda parameter: parameter.name)
        if parameter.name not in ignored and parameter.output is None
    )


def _traced_rows(
    known: Signature,
    call: Sample,
    reference: Callable[..., Any],
    partials: Sequence[str],
    most: int,
    passed: dict[str, None],
) -> Iterator[NamedRow]:
    places = seats(call.args, call.kwargs, known)
    names = [known.operands[seat.operand] for seat in places if seat.operand is not None]
    options: dict[str, list[Placement]] = {}
    for name, seat in zip(names, places, strict=True):
        own = _options(seat.tensor, partials)
        options[name] = [p for p in options.get(name, own) if p in own]
    count = prod(map(len, options.values()))
    if count > most:
        raise DerivationError(
            f"{call} can be placed in {count} ways, more than {most}: give a smaller sample, fewer"
            f" partials, or most={count}"
        )
    for chosen in itertools.product(*options.values()):
        entries = dict(zip(options, chosen, strict=True))
        outputs = _trace_all(known, call, reference, [entries[name] for name in names], passed)
        if outputs is not None and any(entry != REPLICATE for entry in chosen):
            yield NamedRow(
                tuple(map(_as_entry, outputs)),
                tuple(sorted((n, _as_entry(e)) for n, e in entries.items() if e != REPLICATE)),
            )


def _options(tensor: Any, partials: Sequence[str]) -> list[Placement]:
    found: list[Placement] = [REPLICATE]
    found += (Shard(dim) for dim, size in enumerate(tensor.shape) if size >= min(_MESHES))
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        found += map(Partial, partials)
    return found


def _trace_all(
    known: Signature,
    call: Sample,
    reference: Callable[..., Any],
    placements: Sequence[Placement],
    passed: dict[str, None],
) -> list[Placement] | None:
    """Trace on every mesh that can cut so far; None where an input is moved, or meshes differ."""
    found: list[Placement] | None = None
    for ranks in _MESHES:
        if any(
            isinstance(placement, Shard) and tensor.shape[placement.tensor_dim] < ranks
            for tensor, placement in zip(call.inputs, placements, strict=True)
        ):
            continue
        try:
            outputs, ops = trace(reference, call.args, call.kwargs, placements, ranks)
        except Moved as reason:
            if all(placement == REPLICATE for placement in placements):
                raise DerivationError(
                    f"the reference cannot be followed even where everything is whole: {reason}"
                ) from reason
            return None
        passed.update(dict.fromkeys(ops))
        if len(outputs) != known.outputs:
            raise DerivationError(
                f"the reference returns {len(outputs)} tensor(s), but {known.op} {known.outputs}"
            )
        if found is not None and outputs != found:
            return None
        found = outputs
    writable = found is not None and all(_is_plain(placement) for placement in found)
    return found if writable else None


def _is_plain(placement: Placement) -> bool:
    is_partial = isinstance(placement, Partial) and placement.native is None
    return is_partial or isinstance(placement, Shard) or placement == REPLICATE


def _as_entry(placement: Placement) -> Any:
    """Leave open in which kind of sharding a dim is cut."""
    if isinstance(placement, Shard):
        return ShardingPlaceholder(placement.tensor_dim)
    return placement


def _proven(
    op: OpOverload, known: Signature, calls: Sequence[Sample], rule: Frozen, passed: tuple[str, ...]
) -> Derivation:
    """Hold the rows against the op itself, and leave out those that it refutes."""
    report = check(op, calls, rule.bound(known, _nobody), budget=0)
    if not report.samples:
        raise DerivationError(f"{op} cannot be run on the samples, so nothing is proven\n{report}")
    against: dict[str, str] = {}
    for finding in report.errors:
        for shown in finding.about.split(" and "):
            against.setdefault(shown, finding.evidence)
    refuted: dict[NamedRow, str] = {}
    cases = []
    for case in rule.cases:
        like = next(c for c in calls if case.holds(known, c.args, c.kwargs))
        kept = []
        for row in case.rows:
            (entries,) = row.bound(known, _nobody)(op, like.args, like.kwargs)
            shown = show_row(entries, len(like.inputs))
            if shown in report.sound and shown not in against:
                kept.append(row)
            else:
                refuted[row] = against.get(shown, "no sample proves it")
        cases.append(replace(case, rows=tuple(kept)))
    return Derivation(str(op), Frozen(tuple(cases)), passed, tuple(refuted.items()))


def _nobody(name: str) -> tuple[Rule, Signature]:
    raise DerivationError(f"a row by name asks for no rule of {name}")
