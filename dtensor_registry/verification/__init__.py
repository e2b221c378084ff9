"""Ground truth for sharding rules: is a row right, is a rule complete, and what shows it."""

from dtensor_registry.verification.check import check
from dtensor_registry.verification.findings import Finding, Report
from dtensor_registry.verification.inputs import Sample, draw
from dtensor_registry.verification.truth import Verdict, check_row, judge
from dtensor_registry.verification.wholerun import WholeRun, run_whole

__all__ = [
    "Finding",
    "Report",
    "Sample",
    "Verdict",
    "WholeRun",
    "check",
    "check_row",
    "draw",
    "judge",
    "run_whole",
]
