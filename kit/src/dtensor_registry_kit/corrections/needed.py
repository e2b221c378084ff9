"""Corrections of torch's own rules that the torch at hand does not need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from dtensor_registry.discovery import Contribution, Discovery
from dtensor_registry.errors import InstallError
from dtensor_registry.rules import TensorMeta, Without, WrongRows, is_tensor, tensor_inputs
from dtensor_registry.rules.metadata import fill
from dtensor_registry.torch_patch.catalog import SINGLE_DIM, TorchCatalog
from dtensor_registry.torch_patch.corrected_rules import CorrectedRule
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.table_patcher import LEDGER
from dtensor_registry.torch_patch.torch_rules import as_plugin_rule
from dtensor_registry.torch_runtime.ops import find_op
from dtensor_registry.torch_runtime.representative import calls_of
from dtensor_registry_kit.corrections.counterexamples import run_counterexample, samples_of
from dtensor_registry_kit.samples.sample import sample_of
from dtensor_registry_kit.simulation.mesh import simulated_mesh
from dtensor_registry_kit.torch_private import OpOverload


def rows_not_there(discovery: Discovery) -> tuple[str, ...]:
    """List what `without(...)` is to leave out of a rule of torch's that does not have it.

    A rule is asked for the samples of the strategy, or for typical calls if it has none.
    """
    found: list[str] = []
    for contribution in discovery.contributions:
        if isinstance(contribution.strategy.rule, Without):
            for op in TorchCatalog().overloads(contribution.op) or (None,):
                found += _rows_not_there(op, contribution)
    return tuple(found)


def right_without(discovery: Discovery) -> tuple[str, ...]:
    """List the counterexamples of plugins that torch, left alone, has right.

    Raises:
        InstallError: in a process that is part of a process group, or where rules are in force.
    """
    if LOAN.layers:
        raise InstallError("rules are in force in this process, so that torch is not left alone")
    found: dict[str, None] = {}
    shown = {each.ranks for c in discovery.contributions for each in c.strategy.shows}
    for ranks in sorted(shown):
        with simulated_mesh(ranks) as mesh:
            for contribution in discovery.contributions:
                found |= dict.fromkeys(_right_without(contribution, mesh))
    return tuple(found)


def _right_without(contribution: Contribution, mesh: DeviceMesh) -> Iterator[str]:
    op = find_op(contribution.op)
    for shown in contribution.strategy.shows:
        if (
            op is None
            or shown.hangs
            or shown.ranks != mesh.size()
            or not shown.is_of(contribution.op)
        ):
            continue
        if run_counterexample(op, shown, mesh).verdict == "right":
            yield f"{contribution.op}: {shown} as {shown.row}; {contribution.origin}"


def _rows_not_there(op: OpOverload | None, contribution: Contribution) -> Iterator[str]:
    without = contribution.strategy.rule
    assert isinstance(without, Without)
    name = contribution.op if op is None else str(op)
    info = None if op is None else LEDGER.original(SINGLE_DIM, op)
    if op is None or info is None:
        missing = "torch has no such op" if op is None else "torch has no rule with rows for it"
        yield f"{name}: {missing}; {contribution.origin}"
        return
    for wrong in without.wrong:
        # Whether torch has a row does not depend on the calls that it is wrong for.
        always = Without((WrongRows(wrong.rows, wrong.because),))
        met = _met_rows(op, CorrectedRule(info.func, always, contribution.origin), contribution)
        for row in wrong.rows:
            if not any(shown.startswith(row) for shown in met):
                yield f"{name}: torch's rule has no row {row}; {contribution.origin}"


def _met_rows(op: OpOverload, rule: CorrectedRule, contribution: Contribution) -> set[str]:
    """Collect the rows that a correction leaves out of some call."""
    met: set[str] = set()

    def query(asked: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        met.update(shown for shown, _ in rule.left_out(asked, args, kwargs))
        return rule.func(asked, args, kwargs)

    asked_for_calls = as_plugin_rule(op, query)
    for args, kwargs in _calls(op, contribution):
        try:
            asked_for_calls(op, args, kwargs)
        except Exception:  # noqa: S112 - a call that is not meant for the rule shows no row of it
            continue
    return met


def _calls(
    op: OpOverload, contribution: Contribution
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    samples = samples_of(contribution.strategy, op)
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
