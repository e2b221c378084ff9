"""Why a fault that is not caught is none: what was planted is the same, of no use, or right.

A fault is wrong unless one of these holds, so a check that overlooks something cannot hide
here: the first three are found out anew, not taken from the check; the last is a list of theorems.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dtensor_registry.rules.metadata import tensor_inputs
from dtensor_registry_kit import Sample
from dtensor_registry_kit.judging.behaviour import query
from dtensor_registry_kit.verification.targets import Target
from tests.mutation.faults import KEYWORDS
from tests.mutation.trial import Trial, calls_of

SAME = "the rows of every call are the same as before"
NOT_READ = "no row depends on an argument that is no tensor"
USELESS = "no call can use the row: it cuts a dim of size 1, or its dtype has no such partial"

_COPY = "every element of the output is one of the inputs', whatever it holds"
_MONOTONE = "it never falls in x where no integer wraps round, and in no call one does"
_REPEATED = "the first input is repeated along that dim, and may be whole"

RIGHT: dict[tuple[str, str], str] = {
    ("P(avg) passed everywhere", "aten.add_.Scalar"): "the mean of a + s is the mean of a, plus s",
    ("P(avg) passed everywhere", "aten.positive.default"): _COPY,
    ("P(product) in place of a sum", "aten.where.self_out"): _COPY,
    ("P(sum) passed everywhere", "aten.conj_physical_.default"): "conj(a + b) = conj(a) + conj(b)",
    ("blind to dtypes", "aten.add_.Tensor"): _MONOTONE,
    ("blind to dtypes", "aten.addcdiv.out"): _MONOTONE,
    ("blind to dtypes", "aten.addcmul_.default"): _MONOTONE,
    ("blind to sizes of 1", "aten.addr.default"): _REPEATED,
    ("blind to sizes of 1", "aten.addr.out"): _REPEATED,
    ("partial input taken whole", "aten.clamp_max_.Tensor"): "min(min(a, b), y), in any order",
}
"""By kind of fault and op: why the row that was planted is right."""

RISING = {
    "clone": _COPY,
    "fill": "it hangs on nothing",
    "fmax": "the largest of all, in whatever order",
    "hardsigmoid_backward": "x times a slope that is never negative",
    "masked_fill": _COPY,
    "positive": _COPY,
    "sgn": "the sign of a real number never falls",
    "where": _COPY,
}
"""Ops, in all their forms, whose largest output comes of the largest input, and so the least."""


_OTHERS = (0, 1, -1, 2, 2.5, True, False, None, "mean")


def reason_of(trial: Trial) -> str | None:
    """Say why a fault that was not caught is none, or None if that is not known."""
    target = trial.fault.target
    if not trial.planted and trial.fault.schema_info is target.schema_info:
        return SAME
    if trial.fault.kind == KEYWORDS:
        calls = calls_of(target.name, target.plugin)
        return None if any(tensor_inputs((), call.kwargs) for call in calls) else SAME
    if not trial.planted:
        return None if any(_reads(target)) else NOT_READ
    if all(row in trial.dead for row in trial.planted):
        return USELESS
    form_of = target.name.split(".")[1].rstrip("_")
    if form_of in RISING and all(row.startswith(("P(max)", "P(min)")) for row in trial.planted):
        return RISING[form_of]
    return RIGHT.get((trial.fault.kind, target.name))


def _reads(target: Target) -> Iterator[bool]:
    """Give each argument that is no tensor other values, and see whether that changes the rows."""
    for call in calls_of(target.name, target.plugin):
        before = query(target.rule, target.op, call)
        for other in _with_others(call):
            again = query(target.rule, target.op, other)
            yield again.finding is None and again.shown != before.shown


def _with_others(call: Sample) -> Iterator[Sample]:
    for at, value in enumerate(call.args):
        for other in _OTHERS if not _has_tensor(value) else ():
            yield Sample((*call.args[:at], other, *call.args[at + 1 :]), call.kwargs)
    for name, value in call.kwargs.items():
        for other in _OTHERS if not _has_tensor(value) else ():
            yield Sample(call.args, {**call.kwargs, name: other})


def _has_tensor(value: Any) -> bool:
    return bool(tensor_inputs((value,), {}))
