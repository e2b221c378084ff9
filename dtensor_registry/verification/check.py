"""Check one rule for one op: is it right, complete, and well behaved?

    report = check(torch.ops.acme.swiglu.default, [((gate, up), {})], pointwise(linear=[(1,)]))
    assert report.is_trusted, report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dtensor_registry.placements import Shard
from dtensor_registry.rules.strategy import Rule
from dtensor_registry.verification.backward import judge_backward
from dtensor_registry.verification.behaviour import (
    Answer,
    ask,
    changed_mind,
    missing_from_key,
    repeated,
)
from dtensor_registry.verification.complete import missing_rows
from dtensor_registry.verification.findings import Finding, Report
from dtensor_registry.verification.inputs import Role, Sample, sample_of, variants
from dtensor_registry.verification.program import name_of, program
from dtensor_registry.verification.static import plain, show_row
from dtensor_registry.verification.tally import Tally
from dtensor_registry.verification.truth import judge, said
from dtensor_registry.verification.wholerun import WholeRun, run_whole

_LINES = ((2,), (3,), (4,))
_MESHES: dict[Role, tuple[tuple[int, ...], ...]] = {"dtype": ((2,),), "truth": ((2,), (3,))}
_SQUARE = (2, 2)
_MOST_PAIRS = 200
_MOST_MISSING = 5
