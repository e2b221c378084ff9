"""Corrections of torch's own rules that the torch at hand does not need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch._ops import OpOverload

from dtensor_registry._torch.checking.torch_rules import torch_rule
from dtensor_registry.discovery import Contribution, Discovery
from dtensor_registry.rules import TensorMeta, Without, WrongRows, is_tensor, tensor_inputs
from dtensor_registry.torch_patch.catalog import SINGLE_DIM, TorchCatalog
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.table_patcher import LEDGER
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry.torch_runtime.representative import calls_of
from dtensor_registry.verification.inputs import sample_of
from dtensor_registry.verification.wholerun import fill


def unneeded(discovery: Discovery) -> tuple[str, ...]:
    """List what `without(...)` is to leave out of a rule of torch's that does not have it.

    A rule is asked for the samples of the strategy, or for typical calls if it has none.
    """
    found: list[str] = []
    for contribution in discovery.contributions:
        if isinstance(contribution.strategy.rule, Without):
            for name in TorchCatalog().overloads(contribution.op) or (contribution.op,):
                found += _unneeded_of(name, contribution)
    return tuple(found)


def _unneeded_of(name: str, contribution: Contribution) -> Iterator[str]:
    without = contribution.strategy.rule
    assert isinstance(without, Without)
    op = find_op(name)
    info = None if op is None else LEDGER.original(SINGLE_DIM, op)
    if op is None or info is None:
        missing = "torch has no such op" if op is None else "torch has no rule with rows for it"
        yield f"{name}: {missing}; {contribution.origin}"
        return
    # Whether torch has a row does not depend on the calls that it is wrong for.
    always = Without(tuple(WrongRows(wrong.rows, wrong.because) for wrong in without.wrong))
    met = _met_rows(op, CorrectedRule(info.func, always, contribution.origin), contribution)
    for wrong in always.wrong:
        for row in wrong.rows:
            if not any(each is wrong and shown.startswith(row) for shown, each in met):
                yield f"{name}: torch's rule has no row {row}; {contribution.origin}"


def _met_rows(
    op: OpOverload, rule: CorrectedRule, contribution: Contribution
) -> set[tuple[str, WrongRows]]:
    """Collect the rows that a correction leaves out of some call."""
    met: set[tuple[str, WrongRows]] = set()

    def ask(asked: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        met.update(rule.left_out(asked, args, kwargs))
        return rule.func(asked, args, kwargs)

    asked_for_calls = torch_rule(op, ask)
    for args, kwargs in _calls(op, contribution):
        try:
            asked_for_calls(op, args, kwargs)
        except Exception:  # noqa: S112 - a call that is not meant for the rule shows no row of it
            continue
    return met


def _calls(
    op: OpOverload, contribution: Contribution
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    samples = contribution.strategy.samples
    if samples is None:
        for args, kwargs in calls_of(op):
            yield tuple(map(_first_of_list, args)), kwargs
        return
    for sample in map(sample_of, samples()):
        tensors = tensor_inputs(sample.args, sample.kwargs)
        metas = [TensorMeta(tuple(t.shape), t.stride(), t.dtype) for t in tensors]
        yield fill(sample.args, sample.kwargs, metas)


def _first_of_list(value: Any) -> Any:
    """Keep one tensor of a list: torch asks the rule of a list form about each element."""
    return value[:1] if isinstance(value, list) and value and is_tensor(value[0]) else value
